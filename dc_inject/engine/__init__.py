"""The engine: observe, plan, record, act, cycle after cycle."""
