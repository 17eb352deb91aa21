! Trains a surrogate of a 2-D heat equation while the simulation runs: no files in between.
!
!   python examples/12_heat_model.py heat.pt2
!   lockstep run -n 2 -- build/examples/12_heat_fortran [--steps 400] [--run runs/heat] [--model heat.pt2]
!
! Each rank simulates a plate of its own, with periodic boundaries and a flame that moves. The
! surrogate learns to make four time steps at once, from the samples of a ring of the newest ones.
! The plate, the samples and the model are saved every 20 steps; started again, the program goes on
! from there and ends with the same bits. 12_heat.cpp is the same program in C++.
program heat_surrogate
  use lockstep
  implicit none

  integer, parameter :: n = 24
  real(real32), target :: before(1, n, n), heat(1, n, n)
  integer(int64), target :: step(1)
  integer(int64) :: steps
  character(len=1000) :: run, model_file
  type(lockstep_runtime) :: runtime
  type(lockstep_model) :: model
  type(lockstep_trainer) :: trainer
  type(lockstep_buffer) :: samples
  type(lockstep_report) :: report

  call read_arguments()
  call runtime%create()
  call model%load(runtime, model_file)
  call trainer%create(runtime, model, &
      'loss=mse optimizer=AdamW optimizer.lr=5e-3 snapshots.folder="' // trim(run) // '"')
  call samples%create(trainer, "samples", [lockstep_array(before), lockstep_array(heat)], &
      "policy=ring capacity=64 batch_size=8")
  heat = 0
  step = 0
  call trainer%state("heat", lockstep_array(heat))
  call trainer%state("step", lockstep_array(step))
  call trainer%resume()

  do while (step(1) < steps)
    heat(1, 1 + mod(3 * int(step(1)) + 5 * runtime%rank(), n), 1 + mod(7 * (int(step(1)) / 8), n)) = 1
    before = heat
    call advance(heat(1, :, :))
    step = step + 1
    call samples%push([lockstep_array(before), lockstep_array(heat)])
    if (samples%size() < 8) cycle
    call trainer%step_from(samples)
    if (mod(step(1), 20_int64) == 0) then
      call trainer%report(report)
      if (runtime%rank() == 0) then
        print "(a, i0, a, i0, a, es15.9)", "step ", step, "  update ", report%update, "  loss ", &
            report%loss
        flush (6)
      end if
      call trainer%save()
    end if
  end do

  ! In this order: the program owns no MPI, and the runtime ends it.
  call samples%destroy()
  call trainer%destroy()
  call model%destroy()
  call runtime%destroy()

contains

  subroutine advance(u)
    real(real32), intent(inout) :: u(n, n)
    integer :: part
    do part = 1, 4
      u = u + 0.2 * (cshift(u, 1, 1) + cshift(u, -1, 1) + cshift(u, 1, 2) + cshift(u, -1, 2) - 4 * u)
    end do
  end subroutine

  subroutine read_arguments()
    character(len=1000) :: name, value
    integer :: i
    steps = 400
    run = "runs/heat"
    model_file = "heat.pt2"
    do i = 1, command_argument_count(), 2
      call get_command_argument(i, name)
      call get_command_argument(i + 1, value)
      select case (name)
      case ("--steps")
        read (value, *) steps
      case ("--run")
        run = value
      case ("--model")
        model_file = value
      case default
        print "(2a)", "expected --steps, --run or --model, not ", trim(name)
        error stop 2, quiet=.true.
      end select
    end do
  end subroutine
end program
