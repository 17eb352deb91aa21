// The types and constants of mpi_abi.h are those of the mpi.h of this build.
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/mpi/find_mpi.h>
#include <lockstep/collectives/mpi/mpi_abi.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace lockstep {
namespace {

using detail::MpiConstants;
#ifdef OPEN_MPI
using Abi = detail::OpenMpiAbi;
const std::map<std::string, void*> objects = {{"ompi_mpi_comm_world", MPI_COMM_WORLD},
                                              {"ompi_mpi_comm_null", MPI_COMM_NULL},
                                              {"ompi_mpi_byte", MPI_BYTE},
                                              {"ompi_mpi_errors_return", MPI_ERRORS_RETURN},
                                              {"ompi_mpi_info_null", MPI_INFO_NULL},
                                              {"ompi_request_null", MPI_REQUEST_NULL}};
#else
using Abi = detail::MpichAbi;
const std::map<std::string, void*> objects;
#endif

template <typename Own, typename Theirs>
void expect_same(Own own, Theirs theirs) {
  ASSERT_EQ(sizeof own, sizeof theirs);
  EXPECT_EQ(std::memcmp(&own, &theirs, sizeof own), 0);
}

TEST(MpiAbi, HandlesAreThoseOfTheHeader) {
  const Abi abi([](const char* name) { return objects.at(name); });
  expect_same(abi.comm_world, MPI_COMM_WORLD);
  expect_same(abi.comm_null, MPI_COMM_NULL);
  expect_same(abi.byte, MPI_BYTE);
  expect_same(abi.errors_return, MPI_ERRORS_RETURN);
  expect_same(abi.info_null, MPI_INFO_NULL);
  expect_same(abi.request_null, MPI_REQUEST_NULL);
  EXPECT_EQ(sizeof(Abi::Group), sizeof(MPI_Group));
}

TEST(MpiAbi, ConstantsAreThoseOfTheHeader) {
  EXPECT_EQ(Abi::kAnySource, MPI_ANY_SOURCE);
  EXPECT_EQ(Abi::kCommTypeShared, MPI_COMM_TYPE_SHARED);
  EXPECT_EQ(static_cast<void*>(Abi::ignore_statuses()), static_cast<void*>(MPI_STATUSES_IGNORE));
  EXPECT_EQ(MpiConstants::kSuccess, MPI_SUCCESS);
  EXPECT_EQ(MpiConstants::kAnyTag, MPI_ANY_TAG);
  EXPECT_EQ(MpiConstants::kUndefined, MPI_UNDEFINED);
  EXPECT_EQ(MpiConstants::kThreadSingle, MPI_THREAD_SINGLE);
  EXPECT_EQ(MpiConstants::kThreadFunneled, MPI_THREAD_FUNNELED);
  EXPECT_EQ(MpiConstants::kThreadSerialized, MPI_THREAD_SERIALIZED);
  EXPECT_EQ(MpiConstants::kThreadMultiple, MPI_THREAD_MULTIPLE);
  EXPECT_GE(MpiConstants::kLongestText, MPI_MAX_ERROR_STRING);
  EXPECT_GE(MpiConstants::kLongestText, MPI_MAX_LIBRARY_VERSION_STRING);
}

TEST(MpiAbi, AStatusHasTheLayoutOfTheHeader) {
  EXPECT_EQ(sizeof(Abi::Status), sizeof(MPI_Status));
  EXPECT_EQ(offsetof(Abi::Status, source), offsetof(MPI_Status, MPI_SOURCE));
  EXPECT_EQ(offsetof(Abi::Status, tag), offsetof(MPI_Status, MPI_TAG));
  EXPECT_EQ(offsetof(Abi::Status, error), offsetof(MPI_Status, MPI_ERROR));
}

TEST(MpiAbi, TheLibraryThatTheProgramIsLinkedToIsTaken) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  ASSERT_NE(detail::loaded_mpi(), nullptr);
  EXPECT_EQ(detail::loaded_mpi()->version(), std::string(version));
  EXPECT_EQ(&detail::load_mpi(), detail::loaded_mpi());
  EXPECT_EQ(detail::program_comm(MPI_COMM_WORLD), detail::load_mpi().world());
}

}  // namespace
}  // namespace lockstep
