"""A twin of the grid: sites, storages, links, FTS and Rucio by arithmetic, so that a menu can be tried beforehand.

Needs numpy (the extra `twin`); nothing else imports it but the back end and the command that run a menu in it.
"""
