"""The faults of scripts/faults: what each is called, and how its job must end."""

import sys

WORLDS = (3, 2, 4)  # numbers of ranks
PATIENCE = 4 if "--load" in sys.argv else 1
DEADLINE = 6 * PATIENCE    # seconds of the launcher's deadlines
TIMEOUT = 10 * PATIENCE    # LOCKSTEP_TIMEOUT; --quick has no fault that needs it to pass
QUIET = 300     # LOCKSTEP_TIMEOUT of --quick
GRACE = 5
MARGIN = 3      # seconds that a job may need beyond its grace time


class Fault:
    """`code`: what the job ends with; `named`: the launcher must name the rank, None: there is no rank to name;
    `says`: must be in the output, one text or several, {rank} in it is the rank; `options` of lockstep run; `one`: the
    fault is of the whole job and not of a rank; `worlds`: numbers of ranks; `silent`: seconds until the
    fault is noticed; `calls`: injected_calls.cpp makes it; `same`: the weights are those of an undisturbed run; `wrap`: a
    command before that of the launcher; `hosts`: the ranks are on two hosts; `report`: the launcher's report of the failure
    must have the exit code and `says`; `compared`: the ranks are compared, and of two nobody can tell which is right."""

    def __init__(self, name, code, named=True, says="", options=(), one=False, worlds=WORLDS, silent=0, calls=False,
                 same=False, wrap=None, hosts=False, quick=False, report=False, compared=False):
        self.name, self.code, self.named, self.says = name, code, named, says
        self.options, self.one, self.worlds, self.silent = list(options), one, worlds, silent
        self.calls, self.same, self.wrap, self.hosts, self.quick = calls, same, wrap, hosts, quick
        self.report, self.compared = report, compared

    def on(self, world):
        return [0] if self.one else list(range(world))


def mounted(command):
    """A command in a mount namespace of its own, after a mount: only where this user may."""
    def wrap(folder):
        return ["unshare", "--mount", "sh", "-c",
                f"mount --make-rprivate / && {command.format(folder=folder)} && exec \"$@\"", "sh"]
    return wrap


START = ["--start-timeout", str(DEADLINE), "--report-after", "2"]
END = ["--end-timeout", str(DEADLINE), "--report-after", "2"]
LATE = TIMEOUT  # a rank does not arrive
BUDGET = 10     # 20 updates are skipped before the job ends
WAITING_QUICK = (("exception", "closure", "batchnorm"), ("memory", "hook", "split"), ("exception", "loader", "communicator"),
                 ("memory", "backward", "control"))

FAULTS = [
    Fault("none", 0, named=None, one=True),
    # A process ends, or does not, before the runtime is made.
    Fault("early-segv", 139, says="had not made a lockstep runtime", quick=True),
    Fault("early-abort", 134, says="had not made a lockstep runtime"),
    Fault("early-kill", 137, says="had not made a lockstep runtime"),
    Fault("early-exit7", 7, says="had not made a lockstep runtime"),
    Fault("early-exit0", 20, says="before making a runtime", quick=True),
    Fault("early-sleep", 20, says="not made its runtime", options=START, silent=DEADLINE, quick=True),
    Fault("early-stop", 20, says="not made its runtime", options=START, silent=DEADLINE),
    # Between two updates.
    Fault("segv", 139),
    Fault("abort", 134),
    Fault("fpe", 136),
    Fault("kill", 137, quick=True),
    Fault("stop", 20, says="SIGSTOP", silent=LATE),
    Fault("exit0", 20, says="before its runtime had ended", quick=True),
    Fault("exit7", 7),
    Fault("sleep", 20, says="did not arrive", silent=LATE),
    Fault("spin", 20, says="did not arrive", silent=LATE),
    # After the last update, and after the runtime.
    Fault("end-sleep", 20, says="not left its runtime", options=END, silent=DEADLINE),
    Fault("end-kill", 137),
    Fault("end-exit0", 20, says="before its runtime had ended"),
    Fault("late-sleep", 20, says="has not ended", options=END, silent=DEADLINE),
    Fault("late-segv", 139, says="had left its lockstep runtime"),
    Fault("late-exit7", 7, says="had left its lockstep runtime"),
    # Exceptions of the program.
    # Raised on all ranks as one Error, whose code is that of misuse.
    Fault("exception-closure", 2, says="the fault of this test, in the closure"),
    Fault("exception-loop", 1, says="the fault of this test, in the loop", quick=True),
    Fault("exception-loader", 10, says="the fault of this test, in the data set"),
    Fault("exception-hook", 2, says="the fault of this test, in a hook"),
    Fault("exception-destructor", 1, says="the fault of this test, in a destructor"),
    # The same while the other ranks wait in a collective of the closure (tests/launcher/waiting_peers.h).
    *[Fault(f"waiting-{kind}-{place}-{call}", code, says=("rank {rank}: ", text), worlds=(2, 3), report=True,
            quick=(kind, place, call) in WAITING_QUICK)
      for kind, code, text in (("exception", 10, "sample 17 is damaged"), ("memory", 23, "memory"))
      for place in ("closure", "hook", "loader", "backward")
      for call in ("batchnorm", "split", "communicator", "control")],
    # Ranks that do different things.
    Fault("wrong-order", 20, silent=LATE, compared=True),
    Fault("wrong-shapes", 2, compared=True),
    Fault("wrong-model", 2, compared=True),
    Fault("wrong-config", 2, compared=True),
    Fault("wrong-data", 10, compared=True),
    Fault("wrong-batch", 2, says="batch_size is", compared=True),
    # Numbers.
    Fault("inf-once", 0, named=None),
    Fault("nan-once", 0, named=None),
    Fault("inf-forever", 22, silent=BUDGET),
    Fault("nan-forever", 22, silent=BUDGET),
    Fault("flip-weight", 21, compared=True),
    Fault("flip-master", 21, compared=True),
    Fault("flip-moment", 21, compared=True),
    Fault("flip-gradient", 0, named=None),
    # Memory and disks.
    Fault("no-memory", 23),
    Fault("no-memory-left", 23),
    Fault("disk-full", 11, named=None, says="No space left", one=True,
          wrap=mounted("mount -t tmpfs -o size=16k none {folder}")),
    Fault("read-only-disk", 11, named=None, says="Read-only", one=True,
          wrap=mounted("mount -t tmpfs -o ro,size=1m none {folder}")),
    Fault("shared-memory-full", 0, named=None, says="/dev/shm has no room", one=True, quick=True,
          wrap=mounted("mount -t tmpfs -o size=4k none /dev/shm")),
    Fault("log-disk-read-only", 3, named=None, says="cannot write", one=True, options=["--log-dir", "/media/logs"],
          wrap=mounted("mount -t tmpfs none /media && mkdir /media/logs && mount -o remount,ro /media")),
    Fault("snapshot-damaged", 0, named=None, says="resumed at update", one=True),
    Fault("two-runs", 0, named=None, says="", one=True),
    # The disk of a rank is slow, or does not answer; what NFS does to renamed and removed files.
    Fault("disk-slow", 0, named=None, calls=True, same=True),
    Fault("disk-hangs", 20, calls=True, silent=LATE),
    Fault("rename-stale", 0, named=None, says="Stale file handle", one=True, calls=True, same=True),
    Fault("rename-answer-lost", 0, named=None, says="No such file", one=True, calls=True, same=True),
    Fault("nfs-leftovers", 0, named=None, one=True, calls=True, same=True),
    # The clock of a rank jumps a day ahead and back.
    Fault("clock-jump", 0, named=None, calls=True, same=True),
    # Ranks on two hosts, whose link loses packets, is slow, is cut for 3 s, is cut.
    Fault("link-lossy", 0, named=None, calls=True, same=True, hosts=True, worlds=(3, 4)),
    Fault("link-slow", 0, named=None, calls=True, same=True, hosts=True, worlds=(3, 4)),
    Fault("link-healed", 0, named=None, one=True, same=True, hosts=True, worlds=(2, 3, 4)),
    Fault("link-cut", 20, named=None, one=True, hosts=True, worlds=(2, 3, 4), silent=LATE),
    # The launcher itself is killed: no process may be left.
    Fault("launcher-kill", 137, named=None, one=True, silent=DEADLINE),
    # A rank needs 30 ms more for each update; the place of a rank is gone for good.
    Fault("slow", 0, named=None, says="rank {rank} needs ", worlds=(3,)),
    Fault("rank-gone", 0, worlds=(3,), says=("goes on with 2 ranks instead of 3", "resumed at update 2", "done at update 6"),
          options=["--max-restarts", "4", "--min-ranks", "2"]),
]
