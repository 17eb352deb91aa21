! A Fortran program that trains: training FOLDER-OF-MODELS FOLDER-OF-SNAPSHOTS. Stops with 1 at the
! first thing that is not as expected.
program training
  use lockstep
  use, intrinsic :: iso_fortran_env, only: int8
  use mpi
  implicit none

  integer, parameter :: samples = 6, inputs = 3
  real(real32), target :: points(samples, inputs), values(samples, 1)
  real(real32), target :: points_of(inputs, samples), values_of(1, samples)
  character(len=1000) :: models, runs
  integer :: level, failure, rank, ranks
  type(lockstep_runtime) :: runtime

  call get_command_argument(1, models)
  call get_command_argument(2, runs)
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, failure)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, failure)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, failure)
  call runtime%create("seed=5 threads=1 device=cpu", comm=MPI_COMM_WORLD)
  call expect(runtime%rank() == rank .and. runtime%size() == ranks, "rank and size")
  call both_orders_train_alike()
  call parts_of_arrays_are_the_same_as_copies()
  call default_integers_are_class_numbers()
  call a_resumed_run_has_the_bits_of_an_unbroken_one()
  call errors_have_a_code_and_a_message_on_every_rank()
  call runtime%destroy()
  call MPI_Finalize(failure)
  if (rank == 0) print "(a)", "all as expected"

contains

  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what
    if (condition) return
    print "(a, i0, 2a)", "[rank ", rank, "] not as expected: ", what
    error stop 1
  end subroutine

  subroutine expect_refused(stat, message, part)
    integer, intent(in) :: stat
    character(len=*), intent(in) :: message, part
    call expect(stat == lockstep_data .and. index(message, part) > 0, part // " in " // trim(message))
  end subroutine

  subroutine fill(step)
    integer, intent(in) :: step
    integer :: i, j
    do j = 1, inputs
      do i = 1, samples
        points(i, j) = sin(0.7 * i * (j + 1) + rank + 0.1 * step)
      end do
    end do
    values(:, 1) = sum(points, 2)
    points_of = transpose(points)
    values_of = transpose(values)
  end subroutine

  subroutine create(model, trainer, more)
    type(lockstep_model), intent(inout) :: model
    type(lockstep_trainer), intent(inout) :: trainer
    character(len=*), intent(in) :: more
    call model%load(runtime, trim(models) // "/net.pt2")
    call trainer%create(runtime, model, "loss=mse optimizer=AdamW optimizer.lr=0.01 " // more)
  end subroutine

  subroutine train(trainer, first, last, loss)
    type(lockstep_trainer), intent(in) :: trainer
    integer, intent(in) :: first, last
    real(real64), intent(out) :: loss
    type(lockstep_report) :: report
    integer :: step
    do step = first, last
      call fill(step)
      call trainer%step([lockstep_array(points)], lockstep_array(values))
      call trainer%report(report)
      call expect(report%update == step .and. report%closes_update == 1, "the report")
    end do
    loss = report%loss
  end subroutine

  !> x(sample, input) as it is, and x(input, sample) reversed, are the same batch.
  subroutine both_orders_train_alike()
    type(lockstep_model) :: model
    type(lockstep_trainer) :: trainer
    real(real64) :: kept, reversed
    real(real32), target :: output(samples, 1)
    real(real64), target :: wide(1, samples)
    call create(model, trainer, "")
    call fill(1)
    call trainer%evaluate([lockstep_array(points)], lockstep_array(values), kept)
    call trainer%evaluate([lockstep_array(points_of, reversed=.true.)], &
        lockstep_array(values_of, reversed=.true.), reversed)
    call expect(abs(kept - reversed) < 1e-6 * kept, "both orders have one loss")
    call trainer%infer([lockstep_array(points)], [lockstep_array(output)])
    call model%infer([lockstep_array(points)], [lockstep_array(wide, reversed=.true.)])
    call expect(all(real(output(:, 1), real64) == wide(1, :)), "inference into both orders")
    call expect(abs(sum((output - values)**2) / samples - kept) < 1e-5 * kept, "the loss is mse")
    call trainer%destroy()
    call model%destroy()
  end subroutine

  !> Sections that run backward, and components, as inputs, targets and outputs.
  subroutine parts_of_arrays_are_the_same_as_copies()
    type :: sample
      real(real32) :: output, other
      integer :: number
    end type
    type(lockstep_model) :: model
    type(lockstep_trainer) :: trainer
    type(lockstep_buffer) :: buffer
    type(sample), target :: made(samples, 1)
    real(real32), target :: turned(samples, inputs), output(samples, 1), back(samples, 1)
    complex(real32), target :: waves(samples, inputs)
    real(real64) :: whole, part
    integer :: stat
    character(len=400) :: message
    call create(model, trainer, "")
    call fill(1)
    turned = points(samples:1:-1, :)
    waves = cmplx(turned, points)
    call trainer%infer([lockstep_array(points)], [lockstep_array(output)])
    call trainer%infer([lockstep_array(turned(samples:1:-1, :))], &
        [lockstep_array(back(samples:1:-1, :))])
    call expect(all(back(samples:1:-1, :) == output), "sections that run backward")
    call trainer%infer([lockstep_array(waves%im)], [lockstep_array(made%output)])
    call expect(all(made%output == output), "components")
    made%other = values
    call trainer%evaluate([lockstep_array(points)], lockstep_array(values), whole)
    call trainer%evaluate([lockstep_array(waves%im)], lockstep_array(made%other), part)
    call expect(part == whole, "the loss of components")
    call trainer%step([lockstep_array(waves(samples:1:-1, :)%re)], lockstep_array(made%other), stat)
    call expect(stat == lockstep_ok, "a step with components")
    call buffer%create(trainer, "samples", &
        [lockstep_array(points(1, :)), lockstep_array(values(1, :))], "capacity=4 batch_size=1")
    call buffer%push([lockstep_array(points(1, inputs:1:-1)), lockstep_array(made(1, :)%other)])
    call expect(buffer%size() == 1, "a sample of parts")
    call trainer%state("kept", lockstep_array(points(samples:1:-1, :)), stat, message)
    call expect_refused(stat, message, "state kept: an array that is kept has no negative strides")
    call buffer%destroy()
    call trainer%destroy()
    call model%destroy()
  end subroutine

  subroutine default_integers_are_class_numbers()
    type(lockstep_model) :: model
    type(lockstep_trainer) :: trainer
    integer, target :: classes(samples)
    integer(int64), target :: long(samples)
    real(real64) :: loss, loss_of_long
    integer :: i, stat
    character(len=400) :: message
    call model%load(runtime, trim(models) // "/classes.pt2")
    call trainer%create(runtime, model, &
        "loss=cross_entropy optimizer.lr=1d-2 schedule=StepDecay(10, 0.5)")
    call fill(1)
    classes = [(mod(i, 4), i = 1, samples)]
    long = classes
    call trainer%evaluate([lockstep_array(points)], lockstep_array(classes), loss)
    call trainer%evaluate([lockstep_array(points)], lockstep_array(long), loss_of_long)
    call expect(loss == loss_of_long, "classes of both kinds")
    classes = classes + 1
    call trainer%step([lockstep_array(points)], lockstep_array(classes), stat, message)
    call expect_refused(stat, message, "classes from 1, subtract 1")
    call trainer%destroy()
    call model%destroy()
  end subroutine

  subroutine a_resumed_run_has_the_bits_of_an_unbroken_one()
    type(lockstep_model) :: model
    type(lockstep_trainer) :: trainer
    real(real64) :: first, last, unbroken, resumed
    real(real64), target :: field(3)
    integer(int64) :: update
    character(len=:), allocatable :: folder
    folder = 'snapshots.folder="' // trim(runs) // '"'
    block  ! objects end with their scope
      type(lockstep_model) :: model
      type(lockstep_trainer) :: trainer
      call create(model, trainer, "")
      call fill(1)
      call trainer%evaluate([lockstep_array(points)], lockstep_array(values), first)
      call train(trainer, 1, 20, unbroken)
      call fill(1)
      call trainer%evaluate([lockstep_array(points)], lockstep_array(values), last)
    end block
    call expect(last < first, "the loss falls")

    call create(model, trainer, folder)
    call trainer%resume(update=update)
    call expect(update == -1, "nothing to resume")
    call trainer%state("field", lockstep_array(field))
    field = 0
    call train(trainer, 1, 8, resumed)
    field = [1, 2, 3]
    call trainer%save()
    call trainer%finish_saving()
    call trainer%destroy()
    field = 0
    call create(model, trainer, folder)
    call trainer%state("field", lockstep_array(field))
    call trainer%resume(update=update)
    call expect(update == 8 .and. all(field == [1, 2, 3]), "resume")
    call train(trainer, 9, 20, resumed)
    call expect(resumed == unbroken, "the resumed run has the bits of the unbroken one")
  end subroutine

  subroutine errors_have_a_code_and_a_message_on_every_rank()
    type(lockstep_model) :: model
    type(lockstep_trainer) :: trainer
    type(lockstep_report) :: report
    character(len=3000) :: message
    real(real64), target :: other(2), wide(samples, inputs)
    logical, target :: flags(samples, inputs)
    integer(int8), target :: bytes(samples, inputs)
    real(real32), allocatable, target :: nothing(:, :)
    integer :: stat
    call model%load(runtime, "/nowhere.pt2", stat, message)
    call expect(stat == lockstep_data .and. index(message, "/nowhere.pt2") > 0, "no model")
    call model%load(runtime, trim(models) // "/net.pt2", stat, message, options="without=true")
    call expect(stat == lockstep_usage .and. index(message, "without_no_grad") > 0, "no option")
    call model%load(runtime, trim(models) // "/decomposed.pt2", stat, options="without_no_grad=true")
    call expect(stat == lockstep_ok, "an option of a model")
    call create(model, trainer, "")
    call trainer%report(report, stat)
    call expect(stat == lockstep_usage, "no report")
    if (rank == ranks - 1) then
      call trainer%step([lockstep_array(points)], lockstep_array(other), stat, message)
    else
      call trainer%step([lockstep_array(points)], lockstep_array(values), stat, message)
    end if
    call expect(stat == lockstep_data .and. index(message, "the target [2]") > 0, "wrong target")
    call trainer%step([lockstep_array(flags)], lockstep_array(values), stat, message)
    call expect_refused(stat, message, "input: the array is logical")
    call trainer%step([lockstep_array(points)], lockstep_array(bytes), stat, message)
    call expect_refused(stat, message, "the target: the array is integer(int8)")
    call trainer%step([lockstep_array(nothing)], lockstep_array(values), stat, message)
    call expect_refused(stat, message, "input: the array is not allocated")
    wide = points
    call trainer%step([lockstep_array(wide)], lockstep_array(values), stat, message)
    call expect(stat == lockstep_usage .and. index(message, "input: Double [6, 3]") > 0, "real64")
    call trainer%step([lockstep_array(points)], lockstep_array(values), stat)
    call expect(stat == lockstep_ok, "the trainer goes on")
  end subroutine
end program
