// write_netcdf FILE: a variable "x" of 2 x 3 doubles.
#include <netcdf.h>

int main(int, char** argv) {
  const double values[] = {1, 2, 3, 4, 5, 6.5};
  int file = 0;
  int dimensions[2] = {};
  int variable = 0;
  const bool good = nc_create(argv[1], NC_CLOBBER, &file) == NC_NOERR &&
                    nc_def_dim(file, "rows", 2, &dimensions[0]) == NC_NOERR &&
                    nc_def_dim(file, "columns", 3, &dimensions[1]) == NC_NOERR &&
                    nc_def_var(file, "x", NC_DOUBLE, 2, dimensions, &variable) == NC_NOERR &&
                    nc_enddef(file) == NC_NOERR &&
                    nc_put_var_double(file, variable, values) == NC_NOERR &&
                    nc_close(file) == NC_NOERR;
  return good ? 0 : 1;
}
