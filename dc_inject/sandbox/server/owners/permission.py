"""Rucio's generic permissions, and: the owner of a rule may end it, as CMS and ATLAS allow."""

from __future__ import annotations

from typing import Any

import rucio.core.rule
from rucio.common.types import InternalAccount
from rucio.core.permission import generic
from sqlalchemy.orm import Session

OWNER_MAY_CHANGE = {"lifetime", "comment"}


def has_permission(issuer: InternalAccount, action: str, kwargs: dict[str, Any], session: Session) -> bool:
    """Rucio's hook: may `issuer` do `action`? For a missing rule the answer is RuleNotFound."""
    if generic.has_permission(issuer, action, kwargs, session=session):
        return True
    if action == "update_rule":
        return set(kwargs["options"]) <= OWNER_MAY_CHANGE and _owns(issuer, kwargs["rule_id"], session)
    if action == "del_rule":
        return _owns(issuer, kwargs["rule_id"], session)
    return False


def _owns(issuer: InternalAccount, rule_id: str, session: Session) -> bool:
    return bool(rucio.core.rule.get_rule(rule_id, session=session)["account"] == issuer)
