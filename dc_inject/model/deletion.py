"""The gate of deletion: DELETEs at storages, ends of rules, cancels of jobs have addresses from `address`.

`address` proves from names alone that a thing is ours, at the moment when the request is made. What a service
answered is never a reason to delete: it may only choose among names that can be proved.
docs/explanation/deletion.md explains why that can be believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from dc_inject.model import naming, samples, urls
from dc_inject.model.errors import Permanent
from dc_inject.model.items import Slice
from dc_inject.model.samples import FileSet
from dc_inject.model.types import Injection

_HINT = "nothing was deleted; if the name looks like one of dc_inject's, please report this as a bug"


class NotOurs(Permanent):
    """A thing was about to be deleted that cannot be proved to be ours."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that FTS copied for us below a destination prefix; `key` is that of its injection, where known."""

    prefix: str
    url: str
    campaign: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class CopyFolder:
    """A folder in which copies of a campaign are: the campaign's own one, or one below it."""

    prefix: str
    url: str
    campaign: str


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A file of a set of test data below a prefix."""

    prefix: str
    set: FileSet
    number: int


@dataclass(frozen=True, slots=True)
class SampleFolder:
    """The folder of a set of test data below a prefix, or with `whole_name` the one above it."""

    prefix: str
    set: FileSet
    whole_name: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """A file of a set of test data at the place that Rucio gives it; `top` is its RSE's own prefix."""

    top: str
    url: str
    set: FileSet
    number: int


@dataclass(frozen=True, slots=True)
class ObservedRule:
    """Rucio's row of a rule, or of its dataset lock; a lock has no comment and so no key."""

    id: str
    account: str
    did: str
    rse: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule that was made for an injection by an account, and what is seen of it now."""

    id: str
    account: str
    injection: Injection
    observed: ObservedRule


@dataclass(frozen=True, slots=True)
class Job:
    """The FTS job with an id, submitted with a key as its `sid` by a member of a virtual organisation."""

    id: str
    vo: str
    key: str


@dataclass(frozen=True, slots=True)
class SliceDataset:
    """The temporary dataset that was made for the slice of an injection."""

    injection: Injection


@dataclass(frozen=True, slots=True)
class SampleDataset:
    """A dataset of a set of test data in Rucio."""

    scope: str
    name: str
    set: FileSet


StoredFile = CopiedFile | SampleFile | RegisteredFile
StoredFolder = CopyFolder | SampleFolder
DatasetOfOurs = SliceDataset | SampleDataset
Ours = StoredFile | StoredFolder | Rule | Job | DatasetOfOurs


@singledispatch
def address(ours: Ours) -> str:
    """Return the URL, id or DID of a thing of ours that may be deleted or ended; raises NotOurs for any other."""
    raise _not_ours(repr(type(ours).__name__), "it is nothing that we make")


def is_ours(thing: Ours) -> bool:
    """Return whether a thing is proved to be ours: else it is not counted either."""
    try:
        address(thing)
    except NotOurs:
        return False
    return True


def copies(injection: Injection) -> list[CopiedFile]:
    """Return the files that an injection has at its destination, in order."""
    prefix, campaign, key = injection.link.destination, injection.campaign, injection.key
    return [CopiedFile(prefix, url, campaign, key) for url in naming.copies(injection)]


def folder(injection: Injection) -> CopyFolder:
    """Return the folder of an injection at its destination, in which only its own files are."""
    return CopyFolder(injection.link.destination, naming.folder(injection), injection.campaign)


# --------------------------------------------------------------------------- proofs


@address.register
def _copied_file(file: CopiedFile) -> str:
    prefix, url = _canonical(file.prefix), _canonical(file.url)
    copy = naming.read_copy(prefix, url)
    if copy is None:
        raise _not_ours(url, f"it has no name of a copy below {prefix}")
    if copy.campaign != file.campaign:
        raise _not_ours(url, f"it is not of the campaign {file.campaign}")
    if file.key and copy.key != file.key:
        raise _not_ours(url, f"it is not of the job {file.key}")
    return url


@address.register
def _copy_folder(folder: CopyFolder) -> str:
    """Prove a folder by its place and form; the folder above all campaigns is never deleted."""
    prefix, url = _canonical(folder.prefix), _canonical(folder.url)
    top = f"{prefix}/{naming.TOP}/{folder.campaign}"
    if naming.NAME.fullmatch(folder.campaign) is None:
        raise _not_ours(url, f"{folder.campaign!r} is no name of a campaign")
    if url != top and not (url.startswith(f"{top}/") and naming.is_folder(prefix, url)):
        raise _not_ours(url, f"it is no folder of the campaign {folder.campaign} below {prefix}")
    return url


@address.register
def _sample_file(file: SampleFile) -> str:
    sample_set, prefix = file.set, _canonical(file.prefix)
    if (
        samples.from_folder(sample_set.name, sample_set.shape) != sample_set
        or not 1 <= file.number <= sample_set.files
    ):
        raise _not_ours(f"file {file.number} of {sample_set}", "no set at a storage has it")
    return _canonical(sample_set.url(prefix, file.number))


@address.register
def _sample_folder(folder: SampleFolder) -> str:
    sample_set, prefix = folder.set, _canonical(folder.prefix)
    if samples.from_folder(sample_set.name, sample_set.shape) != sample_set:
        raise _not_ours(str(sample_set), "no set at a storage is like that")
    inner = _canonical(sample_set.folder(prefix))
    return urls.parent(inner) if folder.whole_name else inner


@address.register
def _registered_file(file: RegisteredFile) -> str:
    top, url, sample_set = _canonical(file.top), _canonical(file.url), file.set
    if not sample_set.per or samples.from_dataset(sample_set.dataset_of(1), sample_set.before) != sample_set:
        raise _not_ours(url, "no set in Rucio has files of such names")
    if (
        not 1 <= file.number <= sample_set.files
        or sample_set.number_of(sample_set.file(file.number)) != file.number
    ):
        raise _not_ours(url, f"the set {sample_set} has no file {file.number}")
    if not url.startswith(f"{top}/"):
        raise _not_ours(url, f"it is not below {top}, where Rucio has its files")
    name = sample_set.file(file.number).removeprefix("/").encode()
    if not urls.unquote(url[len(top) :]).endswith(b"/" + name):
        raise _not_ours(url, f"it does not end with the name of the file, {sample_set.file(file.number)}")
    return url


@address.register
def _rule(rule: Rule) -> str:
    """Prove a rule: what Rucio shows under its id now is what was made for the injection.

    Rucio has at most one rule of an account for a dataset at an RSE, and gives no id twice.
    """
    injection, observed = rule.injection, rule.observed
    link, key = injection.link, injection.key
    name = f"rule {rule.id}"
    if not rule.id or observed.id != rule.id:
        raise _not_ours(name, f"Rucio shows the rule {observed.id}")
    if not rule.account or observed.account != rule.account:
        raise _not_ours(name, f"it belongs to the account {observed.account}")
    if naming.key(injection.campaign, injection.scenario, injection.cycle.start, link, injection.item.name) != key:
        raise _not_ours(name, "its key is not that of campaign, cycle, link and dataset")
    if (observed.did, observed.rse) != (_did(injection), link.destination):
        raise _not_ours(name, f"it is for {observed.did} at {observed.rse}")
    if observed.key not in {None, key}:
        raise _not_ours(name, "its comment is that of another injection")
    return rule.id


@address.register
def _job(job: Job) -> str:
    """Prove a job by its id: FTS computes it from VO and key, so that no other job can have it."""
    if not (job.vo and job.key) or job.id != naming.job_id(job.vo, job.key):
        raise _not_ours(f"job {job.id}", "its id is not that of its key")
    return job.id


@address.register
def _slice_dataset(dataset: SliceDataset) -> str:
    injection, did = dataset.injection, _did(dataset.injection)
    item = injection.item
    if not isinstance(item, Slice) or not naming.is_slice(did):
        raise _not_ours(did, "it is no temporary dataset of a slice")
    where = (injection.campaign, injection.scenario, injection.cycle.start, injection.link)
    if naming.slice_mark(item.range, *where) not in did:
        raise _not_ours(did, "its mark is not that of campaign, cycle, link and slice")
    return did


@address.register
def _sample_dataset(dataset: SampleDataset) -> str:
    did, sample_set = f"{dataset.scope}:{dataset.name}", dataset.set
    if not dataset.scope or samples.from_dataset(dataset.name, sample_set.before) != sample_set:
        raise _not_ours(did, f"it is no dataset of the set {sample_set}")
    return did


def _did(injection: Injection) -> str:
    """Return the DID that a rule for an injection has: of a slice it is its own dataset."""
    item = injection.item
    return item.id.did if isinstance(item, Slice) else item.name


def _canonical(url: str) -> str:
    """Return a URL that is in its canonical form already: what is sent is what was read."""
    try:
        whole = urls.parse(url)
    except ValueError as error:
        raise _not_ours("a URL", str(error)) from None
    if str(whole) != url:
        raise _not_ours(str(whole), "its URL is not in canonical form")
    return url


def _not_ours(name: str, why: str) -> NotOurs:
    return NotOurs(f"{name} is not deleted: {why}", _HINT)
