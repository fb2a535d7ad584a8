"""The engine under test: settings, launch, readiness, failures and stop."""
