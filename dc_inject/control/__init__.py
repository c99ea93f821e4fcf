"""Control: what a link or a storage may have in flight, asked before a plan and at each moment of release."""

from dc_inject.control.governor import Governor
from dc_inject.control.windows import Windows
