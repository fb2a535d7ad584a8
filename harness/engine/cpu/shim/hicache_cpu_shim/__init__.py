"""Run an unedited SGLang 0.5.15 with HiCache on a machine that has no accelerator (`--device cpu`).

Everything that is replaced, and why; no file of SGLang is edited, nothing else is touched:

replaced                                        why
----------------------------------------------  -----------------------------------------------------------
packages `triton`, `torchvision`                imported at module level by SGLang, not called on CPU;
  (stubs.py)                                    stand-ins, where the real ones are absent
allocator.paged: alloc_extend_kernel,           Triton kernels that hand out KV slots when the page size is
  alloc_decode_kernel (allocator.py)            above 1; the same arithmetic in plain torch
memory_pool_host: transfer_kv_*                 device<->host copies of sgl_kernel, which SGLang imports on
  (transfers.py)                                CUDA and HIP only; the same index copies in plain torch
memory_pool_host: MHATokenToKVPoolHost          pin_memory=False: pinning goes through the CUDA runtime
  .__init__ (transfers.py)
pool_host.base: HICACHE_HOST_MEMORY_RESERVE_    keeping 10 GiB of RAM free would refuse every host pool on
  BYTES (device.py)                             a small machine; 1 GiB here
utils.common: get_available_gpu_memory,         on CPU SGLang takes the machine's free RAM for the device,
  get_cpu_memory_capacity (device.py)           so --mem-fraction-static would mean something else on each
                                                machine; a virtual device of fixed size instead
loader: DefaultModelLoader.load_model,          the weights are charged to the virtual device
  DummyModelLoader.load_model (device.py)
memory_pool: MHATokenToKVPool.__init__          the KV pool is charged to the virtual device
  (device.py)
model_runner: ModelRunner.forward               a slower prefill, for tests of what finds regressions; only where
  (slowdown.py)                                 the variable below asks for it

The radix tree, eviction, write policies, load-back, scheduler, metrics and HTTP API are SGLang's own. Copies
run in the scheduler's thread: they never overlap with compute, and no bus limits them.

Read from the environment:

HICACHE_TUNE_CPU_SHIM           1 turns the shim on
HICACHE_TUNE_CPU_DEVICE_MIB     size of the virtual device; required
HICACHE_TUNE_CPU_COPY_GB_PER_S  bandwidth that no copy exceeds, in 1e9 bytes a second; absent: no limit
HICACHE_TUNE_CPU_PREFILL_FACTOR how many times as long each prefill takes; absent: 1
"""

from . import patching, stubs

PATCHES = {
    "sglang.srt.utils.common": "hicache_cpu_shim.device:patch_utils",
    "sglang.srt.model_loader.loader": "hicache_cpu_shim.device:patch_loader",
    "sglang.srt.mem_cache.memory_pool": "hicache_cpu_shim.device:patch_memory_pool",
    "sglang.srt.mem_cache.pool_host.base": "hicache_cpu_shim.device:patch_host_reserve",
    "sglang.srt.mem_cache.allocator.paged": "hicache_cpu_shim.allocator:patch",
    "sglang.srt.mem_cache.memory_pool_host": "hicache_cpu_shim.transfers:patch",
    "sglang.srt.model_executor.model_runner": "hicache_cpu_shim.slowdown:patch",
}
"""Module of SGLang -> our function that changes it right after its import."""


def install() -> None:
    """Arrange that the modules above are changed as they are imported; costs nothing until then."""
    stubs.install(("triton", "torchvision"))
    patching.install(PATCHES)
