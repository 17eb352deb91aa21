// A library with the name of LibTorch's that has NCCL inside.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
