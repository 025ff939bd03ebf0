# SPDX-License-Identifier: GPL-2.0
"""Booting an x86-64 kernel in QEMU, with two emulated CPUs on real time and the devices that User-mode Linux has not.

The same interface as uml.py's. CPUs are emulated (TCG), each in a thread of its own, so that it works where there is no KVM, and
races are real; how long anything takes there means nothing.
"""

import pathlib
import tempfile

from . import guest, uml
from ..util import cache

MEMORY = "4G"
CPUS = 2
# Memory as a disk, which xfs can be mounted on with DAX.
PMEM = "512M!1G"
DISK_MB = 1024
SECTOR = 16384


def share(tag, path, readonly=True):
    """A directory of the host's, by 9p."""
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap" + ",readonly=on" * readonly,
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def command(kernel, root, script, results, disk, words):
    line = ["console=ttyS0", "nokaslr", f"memmap={PMEM}", "root=root", "rootfstype=9p", "ro", "init=/guest-init",
            "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=262144", "panic=-1", "rcupdate.rcu_cpu_stall_timeout=120",
            f"RUN={script}", f"RESULTS={results}", *words]
    return [str(word) for word in [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", CPUS, "-m", MEMORY, "-nodefaults", "-no-user-config",
        "-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", kernel, "-append", " ".join(str(w) for w in line),
        *share("root", root), *share("host", "/"), *share("results", results, readonly=False),
        # NVMe takes direct I/O at any 4 bytes of memory, so WRITEs as they come over TCP can be direct.
        "-add-fd", f"fd={disk},set=1", "-blockdev", "driver=file,node-name=disk,filename=/dev/fdset/1,aio=threads",
        "-device", "nvme,id=nvme,serial=testbed",
        "-device", f"nvme-ns,drive=disk,bus=nvme,logical_block_size={SECTOR},physical_block_size={SECTOR}"]]


def boot(kernel, script, results, limit=900, words=()):
    """As uml.boot(). The NVMe disk has never been written to, and is gone afterwards."""
    kernel, script, results = (pathlib.Path(path).resolve() for path in (kernel, script, results))
    with tempfile.TemporaryFile(dir=cache()) as disk:
        disk.truncate(DISK_MB << 20)
        return uml.run(command(kernel, guest.root(), script, results, disk.fileno(), words), results, limit, False, [disk.fileno()])
