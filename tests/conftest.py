"""What all tests share."""

from hypothesis import settings

# A deadline would assert a time, which depends on the machine and on what else it does.
settings.register_profile("hicache-tune", deadline=None, print_blob=True)
settings.load_profile("hicache-tune")
