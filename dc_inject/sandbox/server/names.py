"""Names as experiments have them and Rucio's generic schema refuses: `/A/B-v1/RAW#12`, `T1_US_FNAL_Disk`."""

from rucio.common.schema import generic

NAME = {**generic.NAME, "pattern": r"^[/A-Za-z0-9][/A-Za-z0-9\.\-_#]*$"}
RSE = {**generic.RSE, "pattern": r"^([A-Za-z0-9]+([_-][A-Za-z0-9]+)*)$"}
DEFAULT_RSE_ATTRIBUTE = {**generic.DEFAULT_RSE_ATTRIBUTE, "pattern": r"([A-Za-z0-9]+([_-][A-Za-z0-9]+)*)"}
SCOPE_NAME_REGEXP = generic.SCOPE_NAME_REGEXP
SCHEMAS = {"name": NAME, "rse": RSE}
