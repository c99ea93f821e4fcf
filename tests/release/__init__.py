"""What is published of a commit: `build` makes it (`make release`), `check` tries it (`make release-check`)."""
