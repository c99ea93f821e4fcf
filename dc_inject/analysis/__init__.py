"""What follows from menus before anything runs: findings, and the footprint on sites and links."""
