"""What runs inside the Rucio server's own environment; copied into the folder of each sandbox.

Nothing here imports the rest of dc_inject, and nothing else imports this: the two environments do not mix.
"""
