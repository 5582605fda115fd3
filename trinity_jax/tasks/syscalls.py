"""A system-call filter (classic BPF for seccomp): closes what namespaces and rlimits leave open.

In a sandbox of its own namespaces it keeps programs from making further namespaces (in which they could mount
memory of any size), from memory that no limit counts, from tracing, and from seldom used doors into the kernel. A
program that has no namespaces around it (``alone``) may besides start no process, signal none, open no socket and
change no other process's limits. Refused calls fail with EPERM, as they would for lack of a right.
"""

import errno
import platform
import struct

from trinity_jax.errors import UserError

# Numbers on x86-64 and arm64 (linux/arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
_NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
_ALONE = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "socket": (41, 198),
}
_CLONE, _CLONE3, _PRLIMIT = (56, 220), 435, (302, 261)
_NEW_NAMESPACES, _THREAD = 0x7E020000, 0x00010000  # CLONE_NEW*; CLONE_THREAD
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above; AUDIT_ARCH_*

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def program(alone: bool) -> bytes:
    """The filter as an array of ``struct sock_filter``.

    Raises:
        UserError: on a machine whose call numbers are not known here.
    """
    if platform.machine() not in _MACHINES:
        raise UserError(
            f"the sandbox needs Linux on {' or '.join(_MACHINES)}, this is {platform.system()} on {platform.machine()}"
        )
    column, arch = _MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in (_NUMBERS | (_ALONE if alone else {})).values()]
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:  # the x32 calls have numbers of their own
        lines += _unless(_JUMP_AT_LEAST, 0x40000000, errno.ENOSYS)
    for number in refused:
        if number is not None:
            lines += _unless(_JUMP_EQUAL, number, errno.EPERM)
    lines += _unless(_JUMP_EQUAL, _CLONE3, errno.ENOSYS)  # its flags lie in memory; the C library falls back to clone
    # The loaded number is lost where an argument is looked at, so these two end the program.
    threads_only = [(_JUMP_ANY_BIT, 1, 0, _THREAD), (_RETURN, 0, 0, _refusal(errno.EPERM))]
    lines += _argument(_CLONE[column], threads_only if alone else _unless(_JUMP_ANY_BIT, _NEW_NAMESPACES, errno.EPERM))
    if alone:
        own_only = [(_JUMP_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _refusal(errno.EPERM))]
        lines += _argument(_PRLIMIT[column], own_only)
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refusal(error: int) -> int:
    return 0x00050000 | error  # SECCOMP_RET_ERRNO


def _unless(jump: int, value: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(jump, 0, 1, value), (_RETURN, 0, 0, _refusal(error))]


def _argument(number: int, check: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """For one call: ``check`` its first argument, then allow it."""
    body = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *check, (_RETURN, 0, 0, _ALLOW)]
    return [(_JUMP_EQUAL, 0, len(body), number), *body]
