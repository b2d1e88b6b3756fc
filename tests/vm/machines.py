"""The machines that the tests need, when none is asked for: as many sorts of drive in one boot as go together."""

# What a test of the integration program looks for by name: tests/it/vm/*.rs. CMB is d0's and d1's alone.
DRIVES = [
    "name=t0,throttle=40M,node=0,cmb=0", "name=t1,throttle=40M,node=1,cmb=0",  # the drive is the limit
    "name=slow,latency=2,cmb=0",  # answers after 2 ms, any number at once; holds zeros
    "name=b512,lba=512,cmb=0",
    "name=small,mdts=3,cmb=0",  # 32 KiB a command
    "name=large,mdts=9,cmb=0",  # 2 MiB a command: memory's segments bind first
    "name=bad,error=10M,cmb=0",
    "name=meta,ns=ms=8,cmb=0",
    "name=used,cmb=0",  # mounted, partitioned, wiped again
    "name=gone,cmb=0",  # pulled out and plugged in again
]

# Name, options, what of the integration program runs there.
MACHINES = [
    ("drives", ["--no-dax", *(word for drive in DRIVES for word in ("--drive", drive))],
     ["vm::", "--skip", "vm::tags::", "--skip", "vm::dax::"]),
    # Few tags, a polled queue, and the names of a kernel without multipath. DAX devices.
    ("tags", ["--cmdline", "nvme.poll_queues=1 nvme.io_queue_depth=8 nvme_core.multipath=N"],
     ["vm::tags::", "vm::dax::", "vm::gpu::dax", "vm::doctor::"]),
]
