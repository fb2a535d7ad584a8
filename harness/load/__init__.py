"""The load: Locust in its own process plays the sessions of a plan and records every request.

From outside, use `runner.run_load` with a `job.LoadJob`; nothing there imports Locust.
"""
