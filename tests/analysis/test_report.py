"""The pages: whole, safe against what people say, and drawn by a browser from disk."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flows.cli import main
from flows.report.many import write_pages
from flows.report.page import histogram, table
from flows.report.session_page import write_session
from flows.session_files import Wishes, export
from tests.replay.sessions import memory, talk

pytestmark = pytest.mark.flow

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
EVIL = "</script><script>alert(1)</script>"
# Drawing sets the height; before it there is none.
DRAWN = re.compile(r'<canvas[^>]*style="height: \d+px')


def browse(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What a headless browser makes of a page, with a profile of its own in `folder`."""
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=3000",
            f"--user-data-dir={folder}/profile",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    export(memory(talk("one", 20).close(), talk("two/2", 15).close()), folder / "s", Wishes())
    (folder / "s" / "bad.mcap").write_bytes(b"no")
    with pytest.raises(SystemExit) as caught:
        main(["report", str(folder / "s"), "--out", str(folder / "out"), "-j", "1"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "replay",
                str(folder / "s" / "one.mcap"),
                "--set",
                "turn.end_silence=640ms",
                "--html",
                str(folder / "out" / "diff.html"),
            ]
        )
    assert caught.value.code == 1
    return folder / "out"


def test_a_page_for_each_session_and_one_for_the_set(pages: Path) -> None:
    assert sorted(p.name for p in pages.iterdir()) == [
        "diff.html",
        "index.html",
        "one.html",
        "two%2F2.html",
    ]
    index = (pages / "index.html").read_text()
    assert (
        'href="two%252F2.html"' in index
        and "not an MCAP file" in index
        and "response_latency" in index
    )


def test_pages_load_nothing_from_elsewhere(pages: Path) -> None:
    for page in pages.iterdir():
        text = page.read_text()
        assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)
        assert "default-src 'none'" in text


def test_the_sound_is_inside(pages: Path) -> None:
    assert "data:audio/ogg;base64,T2dnUw" in (pages / "one.html").read_text()


def test_what_people_say_stays_text(tmp_path: Path) -> None:
    log = memory(talk(EVIL, 12, transcript=EVIL, reply=EVIL).close())
    write_session(log, EVIL, tmp_path / "x.html", with_sound=False)
    text = (tmp_path / "x.html").read_text()
    assert "<script>alert" not in text and "\\u003c/script>" in text and "&lt;/script&gt;" in text


def test_small_parts() -> None:
    assert histogram("x", [], "s") == ""
    assert histogram("x", [1.0], "s").count("<rect") == 24
    assert "&lt;b&gt;" in table(("a",), [("<b>",)])


@pytest.mark.parametrize("workers", [1, 2])
def test_recordings_with_a_session_of_one_name_have_a_page_each(
    tmp_path: Path, workers: int
) -> None:
    files = [tmp_path / name for name in ("a/same.mcap", "b/same.mcap", "c.mcap", "d.mcap")]
    for seconds, file in zip((6, 12, 18, 24), files, strict=True):
        export(memory(talk("same", seconds).close()), file, Wishes())
    found = write_pages(
        [str(f) for f in files], tmp_path / "pages", None, False, workers, lambda: None
    )
    assert found.files == ["1-same-same.html", "2-same-same.html", "c-same.html", "d-same.html"]
    assert len({(tmp_path / "pages" / name).read_text() for name in found.files}) == 4
    index = found.front.read_text()
    assert all(f'href="{name}"' in index for name in found.files)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (apt-get install chromium)")
@pytest.mark.parametrize("name", ["one.html", "diff.html", "index.html"])
def test_a_browser_draws_them_from_disk(pages: Path, name: str, tmp_path: Path) -> None:
    found = browse(pages / name, tmp_path, "--enable-logging=stderr", "--dump-dom")
    assert "Uncaught" not in found.stderr
    if name != "index.html":
        assert DRAWN.search(found.stdout), found.stderr
    shot = tmp_path / "shot.png"
    browse(pages / name, tmp_path, f"--screenshot={shot}", "--window-size=1200,800")
    assert shot.stat().st_size > 20_000


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (apt-get install chromium)")
def test_the_picture_is_there_before_the_first_frame(pages: Path, tmp_path: Path) -> None:
    """A busy machine's browser may hand over the loaded page without having shown a frame."""
    text = (pages / "diff.html").read_text()
    frozen = tmp_path / "frozen.html"
    frozen.write_text(
        text.replace("</title>", "</title><script>requestAnimationFrame=()=>0</script>", 1)
    )
    found = browse(frozen, tmp_path, "--enable-logging=stderr", "--dump-dom")
    assert "requestAnimationFrame=()=>0</script>" in found.stdout
    assert DRAWN.search(found.stdout), found.stderr


def test_data_of_the_widget_is_json(pages: Path) -> None:
    text = (pages / "one.html").read_text()
    found = re.search(r'timeline\(document\.getElementById\("t"\),(.*?)\)</script>', text)
    assert found is not None
    data = json.loads(found[1])
    assert [row["name"] for row in data["rows"]][:4] == ["user", "turns", "overlaps", "assistant"]
    assert data["rows"][0]["envelope"]["step_us"] == 20_000
