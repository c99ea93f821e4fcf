"""The types of the tool and what follows from them alone: pure, and imported by everything else."""

from dc_inject.model.control import Control, Mode
from dc_inject.model.held import Held, Numbers
from dc_inject.model.holds import Hold
from dc_inject.model.items import Bundle, Dataset, File, Item, ReadOptions, Slice
from dc_inject.model.tape import Tape, TapeFiles
from dc_inject.model.types import (
    EPOCH,
    Campaign,
    Cycle,
    DatasetFilter,
    Entry,
    Exclusion,
    FileFilter,
    Flow,
    FlowKey,
    Injection,
    JobOptions,
    Limits,
    Link,
    Listing,
    Menu,
    Order,
    PoolKey,
    RseSpec,
    Site,
    State,
    Verify,
)
