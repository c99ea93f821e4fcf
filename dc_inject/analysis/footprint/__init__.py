"""The footprint of menus: the load on each site and each scenario, and in total; no service is needed."""
