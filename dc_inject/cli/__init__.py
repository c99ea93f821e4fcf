"""Commands of the core, and what all commands share."""

COMPLETE = "_DC_INJECT_COMPLETE"  # in the environment of a call by a shell's completion, however we were started
