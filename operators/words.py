"""Word lists by language: acknowledgements, words that stop, words that correct. Data, not logic; extend freely."""

from collections.abc import Iterable
from typing import NamedTuple

from operators.heard import words


class WordLists(NamedTuple):
    """Each entry is a phrase as the words that `operators.heard.words` gives."""

    acknowledgements: tuple[tuple[str, ...], ...]
    """Phrases which, alone or together, only say "I am listening"."""
    stops: tuple[tuple[str, ...], ...]
    """Phrases that, at the beginning, mean: be quiet."""
    repairs: tuple[tuple[str, ...], ...]
    """Phrases that, at the beginning, correct what was said."""
    asides: tuple[tuple[str, ...], ...] = ()
    """Phrases that, at the beginning, speak to somebody else in the room."""


def phrases(texts: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Phrases as the words that they consist of."""
    return tuple(tuple(words(text)) for text in texts if words(text))


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return phrases(text.split("|"))


ENGLISH = WordLists(
    acknowledgements=_phrases(
        "mhm|mm|mmm|mmhmm|mm-hmm|hmm|hm|uh|huh|uhhuh|uh-huh|um|yeah|yep|yes|yup|ok|okay|right|alright|all right|sure|exactly"
        "|aha|ah|oh|i see|got it|wow|good|great|cool|i know|i understand|understood|gotcha|noted|of course|absolutely|definitely"
        "|true|indeed|makes sense|that makes sense|fair enough|good point|good idea|good to know|you're right|that's right|that's true"
        "|nice|lovely|perfect|awesome|amazing|wonderful|fantastic|excellent|interesting|funny|crazy|incredible|that's funny"
        "|that's good|that's great|that's nice|that's amazing|that's interesting|that's crazy|sounds good|sounds great"
        "|haha|hahaha|ha|heh|hehe|laughter|aw|aww|whoa|ooh|phew|ugh|ouch|yay|gosh|oh no|oh boy|oh man|oh my|oh my god|oh my gosh|oh god"
        "|no way|really|seriously|no problem|no worries|take your time|go on|go ahead|keep going|i'm listening"
    ),
    stops=_phrases(
        "stop|wait|hold on|be quiet|quiet|shut up|enough|that's enough|pause|one moment|hang on|never mind|forget it|cancel"
    ),
    repairs=_phrases("no|actually|i mean|i meant|sorry|not that|wrong|rather"),
    asides=_phrases(
        "not you|i wasn't talking to you|i'm on the phone|i am on the phone|i'm on a call|i am on a call|i'm talking to the"
        "|i am talking to the|it's just the|i'll be right there|i'll be there"
    ),
)
CHINESE = WordLists(
    acknowledgements=_phrases(
        "嗯|哦|噢|啊|呀|对|是|好|的|呢|哈|嘿|喔|行|知道|知道了|知道啦|明白|明白了|懂了|了解|理解|当然|可以|没错|没问题|没事|不急|好吧|也是|有道理"
        "|你说得对|原来如此|原来是这样|这样|这样啊|是这样|是吗|真的|真的吗|真的假的|不错|还不错|挺好|太好了|太棒了|有意思|厉害|哇|哇塞|天哪|天啊|我的天"
        "|哎|哎呀|哎哟|唉|耶|可惜|真可惜|不会吧|不是吧|继续|接着说|你说|我在听"
    ),
    stops=_phrases("停|等一下|等等|别说了|别讲了|不用说了|安静|够了|打住|算了"),
    repairs=_phrases("不是|不对|不|我是说|错了"),
    asides=_phrases("不是跟你说|没跟你说|我在打电话|我马上来"),
)
LISTS = {"en": ENGLISH, "zh": CHINESE}


def lists_for(language: str) -> WordLists:
    """The lists of a language by its first two letters; English where there are none."""
    return LISTS.get(language[:2].lower(), ENGLISH)


def starts_with(said: list[str], openings: tuple[tuple[str, ...], ...]) -> bool:
    """Whether what was said begins with one of the phrases."""
    return any(tuple(said[: len(phrase)]) == phrase for phrase in openings)


def without_leading(said: list[str], leading: tuple[tuple[str, ...], ...]) -> list[str]:
    """What was said after such phrases at its beginning."""
    rest = said
    while rest:
        length = max((len(p) for p in leading if tuple(rest[: len(p)]) == p), default=0)
        if length == 0:
            break
        rest = rest[length:]
    return rest


def is_only(said: list[str], allowed: tuple[tuple[str, ...], ...]) -> bool:
    """Whether what was said is nothing but such phrases, one after the other."""
    return bool(said) and not without_leading(said, allowed)
