! A loop of the program's own over DataParallel and the loss scaler: a line is fitted to the samples
! of all ranks. Stops with 1 at the first thing that is not as expected.
program own_loop
  use lockstep
  use, intrinsic :: ieee_arithmetic, only: ieee_value, ieee_positive_inf
  use mpi
  implicit none

  type :: neuron  ! its weight and bias are components of an array
    real(real32) :: weight
    integer :: number
    real(real32) :: bias
  end type
  integer, parameter :: samples = 4, spoiled = 5
  type(neuron), target :: line(1), gradient(1)
  real(real32) :: all(2), first(2), x, error
  type(lockstep_runtime) :: runtime
  type(lockstep_data_parallel) :: parallel
  type(lockstep_scaler) :: scaler
  type(lockstep_scale) :: scale
  integer :: level, failure, rank, ranks, step, i, other, stat
  logical :: finite
  character(len=400) :: message

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, failure)
  call runtime%create("threads=1 device=cpu", comm=MPI_COMM_WORLD)
  rank = runtime%rank()
  ranks = runtime%size()
  line(1) = neuron(real(rank), 1, real(7 - rank))
  call parallel%create(runtime, [lockstep_array(line%weight), lockstep_array(line%bias)])
  call expect(line(1)%weight == 0 .and. line(1)%bias == 7 .and. line(1)%number == 1, "rank 0's line")
  call scaler%create(runtime, "policy=apex init_scale=1024")
  do step = 0, 11
    call scaler%state(scale)
    call expect(nint(scale%scale) == merge(512, 1024, step > spoiled), "the scale")
    gradient(1) = neuron(0, 1, 0)
    all = 0
    do other = 0, ranks - 1
      do i = 0, samples - 1
        x = 0.25 * i + 0.5 * other - 0.75
        error = line(1)%weight * x + line(1)%bias - (3 * x - 1)
        all = all + 2 * error * [x, 1.0] / (samples * ranks)
        if (other /= rank) cycle
        gradient(1)%weight = gradient(1)%weight + real(scale%scale) * 2 * error * x / samples
        gradient(1)%bias = gradient(1)%bias + real(scale%scale) * 2 * error / samples
      end do
    end do
    if (step == spoiled .and. rank == ranks - 1) gradient(1)%bias = ieee_value(x, ieee_positive_inf)
    call parallel%average([lockstep_array(gradient%weight), lockstep_array(gradient%bias)])
    call scaler%unscale([lockstep_array(gradient%weight), lockstep_array(gradient%bias)], finite)
    call expect(finite .neqv. step == spoiled, "finite")
    if (finite) then
      call expect(abs(gradient(1)%weight - all(1)) < 1e-5 * (1 + abs(all(1))), "the average")
      call expect(abs(gradient(1)%bias - all(2)) < 1e-5 * (1 + abs(all(2))), "the other average")
      line%weight = line%weight - 0.3 * gradient%weight
      line%bias = line%bias - 0.3 * gradient%bias
    end if
    call scaler%update()
    first = [line(1)%weight, line(1)%bias]
    call MPI_Bcast(first, 2, MPI_REAL, 0, MPI_COMM_WORLD, failure)
    call expect(all_equal(first, [line(1)%weight, line(1)%bias]), "the same bits on all ranks")
  end do
  scale%scale = 4096
  call scaler%load(scale)
  call scaler%state(scale)
  call expect(nint(scale%scale) == 4096, "a loaded scale")
  call parallel%average([lockstep_array(gradient%weight)], stat, message)
  call expect(stat == lockstep_data .and. index(message, "1 gradients for 2 weights") > 0, "one only")
  call scaler%destroy()
  call parallel%destroy()
  call runtime%destroy()
  call MPI_Finalize(failure)
  if (rank == 0) print "(a)", "all as expected"

contains

  logical function all_equal(a, b)
    real(real32), intent(in) :: a(:), b(:)
    all_equal = count(a == b) == size(a)
  end function

  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what
    if (condition) return
    print "(a, i0, 2a)", "[rank ", rank, "] not as expected: ", what
    error stop 1
  end subroutine
end program
