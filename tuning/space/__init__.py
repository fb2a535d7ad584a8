"""The search space: which flags may vary, over what, and when."""

from tuning.space.asked import Asked
from tuning.space.bounds import Bounds
from tuning.space.custom import dimensions_of
from tuning.space.cutting import Cut, cut
from tuning.space.dimension import SGLANG_DEFAULT, WITH_HICACHE, Choice, Condition, Dimension
from tuning.space.presets import DEFAULT_PRESET, Engine, Preset, preset_dimensions, preset_space
from tuning.space.ranges import Ranges
from tuning.space.space import Space, arranged, both, flag_of, one_setting, only, setting_of
from tuning.space.values import TRANSFER, TRANSFERS, WRITE_POLICIES

__all__ = [
    "DEFAULT_PRESET",
    "SGLANG_DEFAULT",
    "TRANSFER",
    "TRANSFERS",
    "WITH_HICACHE",
    "WRITE_POLICIES",
    "Asked",
    "Bounds",
    "Choice",
    "Condition",
    "Cut",
    "Dimension",
    "Engine",
    "Preset",
    "Ranges",
    "Space",
    "arranged",
    "both",
    "cut",
    "dimensions_of",
    "flag_of",
    "one_setting",
    "only",
    "preset_dimensions",
    "preset_space",
    "setting_of",
]
