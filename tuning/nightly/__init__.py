"""The nightly job: measures what runs in production, compares it with the last good night, and proposes what is better."""
