"""What can go wrong with the ledger, each with the cure in its text."""

from __future__ import annotations


class LedgerError(RuntimeError):
    """Base of the ledger's errors."""


class LedgerNotReadyError(LedgerError):
    """The ledger cannot be reached, or its schema is missing or old. A retry helps once it is cured."""


class LedgerUnreachableError(LedgerNotReadyError):
    """The database does not answer now. Waiting helps."""


class LedgerIdentityError(LedgerError):
    """The process reads another ledger than the one that issued the grant. Nothing was changed."""


class UnknownItemError(LedgerError, LookupError):
    """No item has this key."""


class UnknownPipelineError(LedgerError, LookupError):
    """No pipeline of this name has been declared to the ledger yet."""


class BadItemError(LedgerError, ValueError):
    """An item that cannot be registered; the text names the field."""


class StaleRunError(LedgerError):
    """The run is not the item's current one, so it may not move the item."""


class ItemWaitsError(LedgerError):
    """The item waits for this very stage already: the dispatcher gives it a run as soon as a slot is free."""


class RefusedActionError(LedgerError, ValueError):
    """What a person asked for makes no sense for this item or scope; nothing was changed."""
