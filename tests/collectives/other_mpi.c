// Stands for an MPI library with a binary interface that lockstep does not know.
int PMPI_Init_thread(void) {
  return 1;
}
