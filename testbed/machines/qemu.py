# SPDX-License-Identifier: GPL-2.0
"""An x86-64 machine by QEMU, with the devices that User-mode Linux has not. It works where there is no KVM.

Two CPUs are emulated (TCG), each in a thread of its own on real time: races are real, and how long anything takes means
nothing. Or there is one CPU, whose clock counts its instructions and jumps to the next timer when it has none to run:
then a disk that takes 10 ms takes as long as in User-mode Linux's simulated time, on any kernel.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from ..util import cache

MEMORY = "4G"
CPUS = 2
# One instruction is a nanosecond.
COUNTED = ("-icount", "shift=0,sleep=off", "-accel", "tcg,thread=single", "-smp", "1")
# No other clock is there to find the counted one wrong by. It jumps while the host looks for a file, and a kernel that
# warns of tasks that wait for two minutes, as Debian's does, would have some.
COUNTED_WORDS = ("tsc=reliable", "sysctl.kernel.hung_task_timeout_secs=1200")
FREE = ("-accel", "tcg,thread=multi", "-smp", str(CPUS))
# Memory as a disk, which xfs can be mounted on with DAX.
PMEM = "512M!1G"
DISK_MB = 1024
# NVMe takes direct I/O at any 4 bytes of memory, so WRITEs as they come over TCP can be direct. This has large sectors.
# virtio-blk, which only Debian's kernel has a driver of, wants memory to be aligned.
DEVICES = (
    "nvme-ns,bus=nvme,logical_block_size=16384,physical_block_size=16384",
    "virtio-blk-pci",
)


@contextlib.contextmanager
def disks() -> Iterator[list[int]]:
    """The descriptors of what disks have: never written to before, and gone afterwards."""
    with contextlib.ExitStack() as stack:
        contents = [stack.enter_context(tempfile.TemporaryFile(dir=cache())) for _ in DEVICES]
        for one in contents:
            one.truncate(DISK_MB << 20)
        yield [one.fileno() for one in contents]


def share(tag: str, path: pathlib.Path, readonly: bool = True) -> list[str]:
    """A directory of the host's, by 9p."""
    return [
        "-fsdev",
        f"local,id={tag},path={path},security_model=none,multidevs=remap" + ",readonly=on" * readonly,
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
    ]


def drive(number: int, disk: int) -> list[str]:
    """The disk of DEVICES with that number, with the contents that a descriptor is of."""
    return [
        "-add-fd",
        f"fd={disk},set={number}",
        "-blockdev",
        f"driver=file,node-name=disk{number},filename=/dev/fdset/{number},aio=threads",
        "-device",
        f"{DEVICES[number]},drive=disk{number}",
    ]


def command(
    kernel: pathlib.Path,
    root: pathlib.Path,
    script: pathlib.Path,
    results: pathlib.Path,
    disks: Sequence[int],
    words: Sequence[object] = (),
    terminal: bool = False,
    counted: bool = False,
) -> list[str]:
    """The command line. With `terminal`, ours is the guest's: Ctrl-C is a character, and results/console has it all.

    With `counted`, the clock counts instructions.

    A kernel of Debian's, vmlinuz-X, has its initial RAM disk beside it, as initrd.img-X.
    """
    ram_disk = kernel.with_name(kernel.name.replace("vmlinuz-", "initrd.img-"))
    line = [
        "console=ttyS0",
        "nokaslr",
        f"memmap={PMEM}",
        "root=root",
        *(["boot=share"] if ram_disk != kernel else []),
        "rootfstype=9p",
        "ro",
        "init=/guest-init",
        "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=262144",
        "panic=-1",
        "rcupdate.rcu_cpu_stall_timeout=120",
        *(COUNTED_WORDS if counted else []),
        f"RUN={script}",
        f"RESULTS={results}",
        *words,
    ]
    serial = (
        ["-chardev", f"stdio,id=serial,signal=off,logfile={results}/console", "-serial", "chardev:serial"]
        if terminal
        else ["-serial", "stdio"]
    )
    return [
        str(word)
        for word in [
            "qemu-system-x86_64",
            *(COUNTED if counted else FREE),
            "-cpu",
            "max",
            "-m",
            MEMORY,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            *serial,
            "-kernel",
            kernel,
            *(["-initrd", ram_disk] if ram_disk != kernel else []),
            "-append",
            " ".join(str(w) for w in line),
            *share("root", root),
            *share("host", pathlib.Path("/")),
            *share("results", results, readonly=False),
            "-device",
            "nvme,id=nvme,serial=testbed",
            *(word for number, disk in enumerate(disks) for word in drive(number, disk)),
        ]
    ]
