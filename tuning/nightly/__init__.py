"""The nightly job: measures what runs in production, compares it with the last good night, proposes what is better."""
