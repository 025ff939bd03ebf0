# SPDX-License-Identifier: GPL-2.0
import dataclasses
import re

import pytest
from conftest import Fail, commit, topic

from testbed import util
from testbed.packages import debian, dkms, package
from testbed.series import base, topics, tree

SVC = """void svc_recv(void) { trace_svc_recv(); }
EXPORT_SYMBOL_GPL(svc_recv);
void svc_create(void) { }
EXPORT_SYMBOL_GPL(svc_create);
void rpc_run(void) { }
EXPORT_SYMBOL_GPL(rpc_run);
"""


@pytest.fixture
def packaged(place, ksrc, monkeypatch):
    """A small kernel of Debian's, and a series of three patches: of modules, of prose, and of the kernel itself."""
    monkeypatch.setattr(dkms, "BUILD", place / "build")
    for path in ("net/sunrpc/svc.c", "fs/lockd/svc.c", "fs/nfsd/vfs.c", "fs/nfs/callback.c", "lib/lwq.c"):
        commit(ksrc, path, SVC if path == "net/sunrpc/svc.c" else "/* */\n", path)
    for path in ("include/linux/sunrpc/svc.h", "include/linux/sunrpc/clnt.h"):
        commit(ksrc, path, "/* */\n", path)
    found = dataclasses.replace(base.from_tree(ksrc), name="Linux 7.3.4 (linux-source-7.3 7.3.4-1)", packaged=True)
    tree.tree(found)
    topic(tree.TREE, "one")
    (tree.TREE / "net/sunrpc/svc.c").write_text(SVC + "/* more */\n")
    commit(tree.TREE, "include/linux/sunrpc/svc.h", "/* pool */\n", "SUNRPC: more")
    (tree.TREE / "net/sunrpc/svc_kunit.c").write_text("/* */\n")
    commit(tree.TREE, "Documentation/x.rst", "X\n", "SUNRPC: say so")
    topic(tree.TREE, "two")
    commit(tree.TREE, "lib/lwq.c", "/* faster */\n", "lwq: faster")
    tree.export()
    return found


def unpacked(deb, place):
    util.run("dpkg-deb", "-R", deb, place)
    (source,) = place.glob("usr/src/knfsd-queue-*")
    return source


def test_the_package_has_the_modules_sources_as_patched(packaged, tmp_path):
    source = unpacked(dkms.dkms(packaged), tmp_path / "deb")
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    wanted = {"net/sunrpc/svc.c", "fs/lockd/svc.c", "fs/nfsd/vfs.c", "fs/nfs/callback.c", "net/sunrpc/svc_kunit.c"}
    # Of headers, only those that the series changes: all others are the kernel's own.
    assert files == wanted | {"Kbuild", "dkms.conf", "include/renamed.h", "include/linux/sunrpc/svc.h"}
    assert "more" in (source / "net/sunrpc/svc.c").read_text()


def test_it_is_for_one_kernel(packaged, tmp_path):
    source = unpacked(dkms.dkms(packaged), tmp_path / "deb")
    conf = (source / "dkms.conf").read_text()
    (kernel,) = re.findall(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"$', conf, re.M)
    assert re.search(kernel, "7.3.4+deb13-amd64")
    for other in (
        "7.3.5+deb13-amd64",
        "7.3.4+deb13-rt-amd64",
        "7.3.4+deb13-amd64-mine",
        "17.3.4+deb13-amd64",
        "7a3.4+deb13-amd64",
    ):
        assert not re.search(kernel, other), other
    control = (tmp_path / "deb/DEBIAN/control").read_text()
    assert "linux-headers-7.3.4+deb13-amd64" in control
    for module, where in dkms.MODULES.items():
        assert f'_NAME[{list(dkms.MODULES).index(module)}]="{module}"' in conf and f'"{where}"' in conf


def test_symbols_are_told_apart_from_those_of_other_sources(packaged, tmp_path):
    source = unpacked(dkms.dkms(packaged), tmp_path / "deb")
    version = source.name.rpartition("+")[2]
    said = (source / "include/renamed.h").read_text()
    # Not svc_recv, which is a trace point's name, too; not what is no server's.
    assert re.findall(r"^#define (.*)$", said, re.M) == [f"svc_create svc_create_{version}"]
    reworked = unpacked(
        dkms.dkms(dataclasses.replace(packaged, name="Linux 7.3.4 (linux-source-7.3 7.3.4-2)")), tmp_path / "2"
    )
    assert (reworked / "include/renamed.h").read_text() != said


def test_a_selftest_does_not_make_it_another_package(packaged):
    made = dkms.dkms(packaged)
    commit(tree.TREE, "tools/testing/selftests/net/new.sh", "#!/bin/bash\n", "selftests: new")
    tree.export()
    assert dkms.dkms(packaged) == made
    commit(tree.TREE, "fs/nfsd/vfs.c", "/* faster */\n", "NFSD: faster")
    tree.export()
    assert dkms.dkms(packaged) != made


def test_what_the_kernel_itself_has_is_left_out_and_said(packaged, capsys):
    assert dkms.sort(topics.series()) == {"two/0001-lwq-faster.patch": ["lib/lwq.c"]}
    dkms.dkms(packaged)
    assert "left out: two/0001-lwq-faster.patch: lib/lwq.c is the kernel's own" in capsys.readouterr().out


def test_it_says_of_each_topic_how_much_it_has(packaged, capsys):
    commit(tree.TREE, "fs/lockd/svc.c", "/* faster */\n", "lockd: faster")
    topic(tree.TREE, "three")
    commit(tree.TREE, "tools/testing/selftests/net/new.sh", "#!/bin/bash\n", "selftests: new")
    topic(tree.TREE, "four")
    commit(tree.TREE, "lib/other.c", "/* other */\n", "lib: other")
    tree.export()
    dkms.dkms(packaged)
    said = [line.partition("topics in the package, ")[2] for line in capsys.readouterr().out.splitlines()]
    assert (
        [line for line in said if line]
        == dkms.carried(topics.series())
        == [
            "whole: one",
            "in part: two (1 of 2 patches)",
            "not: four (code of the kernel's own)",
            "tests alone, which need no package: three",
        ]
    )


def test_half_a_patch_is_refused(packaged):
    (tree.TREE / "lib/lwq.c").write_text("/* both */\n")
    commit(tree.TREE, "fs/nfsd/vfs.c", "/* both */\n", "NFSD: both")
    tree.export()
    with pytest.raises(Fail, match="two/0002-NFSD-both.patch changes the modules and lib/lwq.c.*split the patch"):
        dkms.dkms(packaged)


UAPI = "include/uapi/linux/nfsd_netlink.h"


def netlinked(ksrc, **users):
    """A base whose netlink header has these users, and a series whose last patch changes it together with nfsd."""
    commit(ksrc, UAPI, "/* uapi */\n", "uapi")
    for name, line in users.items():
        commit(ksrc, name.replace("__", "/") + ".c", line + "\n", name)
    found = dataclasses.replace(base.from_tree(ksrc), name="Linux 7.3.4 (linux-source-7.3 7.3.4-1)", packaged=True)
    tree.tree(found, force=True)
    (tree.TREE / UAPI).write_text("/* more */\n")
    commit(tree.TREE, "fs/nfsd/vfs.c", "/* more */\n", "NFSD: both")
    tree.export()
    return found


def test_a_header_that_only_the_modules_include_is_the_packages_own(packaged, ksrc, tmp_path):
    include = "#include <uapi/linux/nfsd_netlink.h>"
    found = netlinked(ksrc, fs__nfsd__netlink=include, fs__nfsd__export=include.replace("uapi/", ""))
    source = unpacked(dkms.dkms(found), tmp_path / "deb")
    assert (source / UAPI).read_text() == "/* more */\n"
    # Both names of it lead there before they lead to the kernel's headers.
    order = re.findall(r"(?:-I|\$\()[\w$()/]+", (source / "Kbuild").read_text().partition("LINUXINCLUDE := ")[2])
    mine = [f"-I$(KBUILD_EXTMOD)/{name}" for name in ("include", "include/uapi")]
    assert [word for word in order if word in mine or word == "$(LINUXINCLUDE)"] == [*mine, "$(LINUXINCLUDE)"]


def test_a_header_that_others_include_is_the_kernels(packaged, ksrc):
    users = {"fs__nfsd__netlink": "#include <linux/nfsd_netlink.h>", "lib__nl": '# include "linux/nfsd_netlink.h"'}
    found = netlinked(ksrc, **users)
    with pytest.raises(Fail, match=f"changes the modules and {UAPI}, which is the kernel's own"):
        dkms.dkms(found)


def test_a_header_that_is_new_is_not_the_packages(packaged):
    (tree.TREE / "include/linux").mkdir(parents=True, exist_ok=True)
    (tree.TREE / "include/linux/new.h").write_text("/* new */\n")
    commit(tree.TREE, "lib/lwq.c", "#include <linux/new.h>\n", "lwq: use it")
    tree.export()
    assert dkms.theirs(packaged, topics.series()) == set()


def test_a_tree_of_the_users_own_is_refused(packaged, ksrc):
    with pytest.raises(Fail, match="make dkms is for Debian's own kernel.*unset KSRC"):
        dkms.dkms(base.from_tree(ksrc))


def test_symbols_without_a_name_of_their_own_are_refused(tmp_path):
    (tmp_path / "svc.c").write_text("void svc_recv(void) { trace_svc_recv(); }\nEXPORT_SYMBOL_GPL(svc_recv);\n")
    with pytest.raises(Fail, match="modules could not be told apart"):
        dkms.renamed(tmp_path, "0")


def test_what_purging_leaves_is_named():
    before = "0 usr/lib/modules/7/modules.dep\n1 etc/passwd\n"
    assert package.traces(before, before + "2 var/lib/dkms/mok.key\n3 var/lib/dkms/mok.pub\n") == ""
    assert "+2 usr/src/ours.c" in package.traces(before, before + "2 usr/src/ours.c\n")
    assert "-0 usr/lib/modules/7/modules.dep" in package.traces(before, before.replace("0", "7"))


def test_only_the_refusal_that_is_documented_counts():
    refusal = "module knfsd-queue/1 includes a BUILD_EXCLUSIVE directive\nwhich does not match this kernel."
    assert not package.refused(refusal)
    assert package.refused("Building module(s).... done.")
    assert package.refused("")


def test_a_source_that_no_module_of_the_package_has_is_named(packaged):
    assert dkms.uncompiled(topics.series(), "  CC [M]  net/sunrpc/other.o\n") == ["net/sunrpc/svc.c"]
    assert dkms.uncompiled(topics.series(), "  CC [M]  net/sunrpc/svc.o\n") == []


def test_a_module_that_was_not_built_is_named(tmp_path):
    machine = debian.Machine(tmp_path, "7")
    (tmp_path / "make.log").write_text("svc.c: error: no\n")
    where = machine.root("patched") / "usr/lib/modules/7/updates/dkms"
    where.mkdir(parents=True)
    (where / "lockd.ko.xz").touch()
    package.built(machine, "lockd")
    with pytest.raises(Fail, match="no nfsd.ko(?s:.*)svc.c: error: no"):
        package.built(machine, "nfsd")
