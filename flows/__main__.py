"""`python -m flows` is `venus`."""

from flows.cli import main

main()
