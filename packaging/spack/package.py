# A Spack recipe. From a checkout of lockstep:
#   spack repo create lockstep-repo && mkdir -p lockstep-repo/packages/lockstep
#   cp packaging/spack/package.py lockstep-repo/packages/lockstep && spack repo add lockstep-repo
#   spack dev-build -d . lockstep@0.1.0
from spack.package import *


class Lockstep(CMakePackage):
    """Trains LibTorch models on many ranks, GPUs over NCCL and hosts over MPI and shared memory."""

    license("Apache-2.0")

    version("0.1.0")

    variant("cuda", default=False, description="Kernels for CUDA devices, and NCCL")
    variant("fortran", default=True, description="Build the Fortran module")
    variant("images", default=True, description="Read JPEG, PNG and tar files")
    variant("shared", default=False, description="Build shared libraries")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type=("build", "link"))

    depends_on("py-torch@2.11: ~rocm", type=("build", "link", "run"))
    depends_on("py-torch~cuda", type=("build", "link", "run"), when="~cuda")
    depends_on("py-torch+cuda+nccl", type=("build", "link", "run"), when="+cuda")
    depends_on("cuda", type=("build", "link", "run"), when="+cuda")
    depends_on("nccl", type=("build", "link", "run"), when="+cuda")
    depends_on("mpi", type="run")
    depends_on("highway", type=("build", "link"))
    depends_on("xxhash", type=("build", "link"))
    depends_on("libsodium", type=("build", "link"))
    depends_on("zlib-api", type=("build", "link"))
    depends_on("cli11", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("libjpeg-turbo", type=("build", "link"), when="+images")
    depends_on("libpng", type=("build", "link"), when="+images")
    depends_on("libarchive", type=("build", "link"), when="+images")

    generator("ninja")

    def cmake_args(self):
        python = self.spec["python"]
        torch = join_path(self.spec["py-torch"].prefix, python.package.platlib, "torch")
        arguments = [
            self.define("LibTorch_ROOT", torch),
            self.define("Python3_EXECUTABLE", python.command.path),
            self.define("LOCKSTEP_BUILD_TESTS", False),
            self.define("LOCKSTEP_BUILD_BENCHMARKS", False),
            self.define("LOCKSTEP_BUILD_EXAMPLES", False),
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
            self.define_from_variant("LOCKSTEP_FORTRAN", "fortran"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
        ]
        if self.spec.satisfies("+cuda"):
            arguments += [self.define("CUDAToolkit_ROOT", self.spec["cuda"].prefix),
                          self.define("NCCL_ROOT", self.spec["nccl"].prefix)]
        return arguments
