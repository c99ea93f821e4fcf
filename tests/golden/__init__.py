"""What the tool writes, plans, keeps and sends, compared with golden files (decision record 31 says why)."""
