/* fake/cuda/old_nccl.c: a test double of a libnccl.so.2 that is too old: it has this function and no other. */
__attribute__((visibility("default"))) int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = 2708;
  return 0;
}
