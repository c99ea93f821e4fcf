"""The test of one link, judged: from readings to the verdict of each step and the conclusion. Pure."""
