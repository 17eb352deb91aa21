// write_hdf5 FILE: a dataset "x" of 2 x 3 doubles.
#include <hdf5.h>
#include <hdf5_hl.h>

int main(int, char** argv) {
  const hsize_t sizes[] = {2, 3};
  const double values[] = {1, 2, 3, 4, 5, 6.5};
  const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const herr_t made = H5LTmake_dataset_double(file, "x", 2, sizes, values);
  return H5Fclose(file) >= 0 && made >= 0 ? 0 : 1;
}
