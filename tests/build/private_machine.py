"""Commands on a machine with other devices and without a CUDA toolkit: a private mount namespace, which ends with them."""

import os
import subprocess

# SCRATCH DEVICES COMMAND...: an empty cache of the dynamic linker finds no library of a toolkit.
SCRIPT = r"""
set -e
scratch="$0" devices="$1"
shift
mount -t tmpfs none "$scratch"
mkdir -p "$scratch/dev/shm" "$scratch/dev/pts"
for name in null zero full random urandom tty; do
  touch "$scratch/dev/$name"
  mount --bind "/dev/$name" "$scratch/dev/$name"
done
mount --bind /dev/shm "$scratch/dev/shm"
mount --rbind /dev/pts "$scratch/dev/pts"
ln -s pts/ptmx "$scratch/dev/ptmx"
ln -s /proc/self/fd "$scratch/dev/fd"
for name in $devices; do touch "$scratch/dev/$name"; done
touch "$scratch/cache"
for toolkit in /usr/local/cuda*; do [ ! -d "$toolkit" ] || mount -t tmpfs none "$toolkit"; done
mount --bind "$scratch/cache" /etc/ld.so.cache
mount --rbind "$scratch/dev" /dev
exec env -u CUDA_HOME -u LD_LIBRARY_PATH -u CUDA_VISIBLE_DEVICES "$@"
"""


def on_machine(scratch, devices, command):
    """The command that runs `command` there; `scratch` is an empty folder, `devices` are names in /dev."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    return [*unshare, "bash", "-c", SCRIPT, str(scratch), " ".join(devices), *map(str, command)]


def why_not(scratch):
    """Why no such machine can be made here; empty: it can."""
    try:
        done = subprocess.run(on_machine(scratch, ["nvidia0"], ["test", "-e", "/dev/nvidia0"]), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stdout.strip() or f"code {done.returncode}"
