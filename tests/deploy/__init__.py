"""What operators install: units of systemd."""
