! The Fortran side of c_step.cpp: begin, steps, end.
module fortran_step
  use iso_c_binding
  use lockstep
  implicit none
  private
  type(lockstep_runtime) :: runtime
  type(lockstep_model) :: model
  type(lockstep_trainer) :: trainer

contains

  subroutine begin(comm, path, length) bind(c, name="fortran_step_begin")
    integer(c_int), value :: comm, length
    character(kind=c_char), intent(in) :: path(length)
    character(len=length) :: name
    integer :: i
    do i = 1, length
      name(i:i) = path(i)
    end do
    call runtime%create("threads=1 device=cpu", comm=comm)
    call model%load(runtime, name)
    call trainer%create(runtime, model, "loss=mse optimizer.lr=1e-3")
  end subroutine

  subroutine steps(count, x, y) bind(c, name="fortran_step_run")
    integer(c_int), value :: count
    real(c_float), target :: x(3, 16), y(1, 16)
    integer :: i
    do i = 1, count
      call trainer%step([lockstep_array(x, reversed=.true.)], lockstep_array(y, reversed=.true.))
    end do
  end subroutine

  subroutine finish() bind(c, name="fortran_step_end")
    call trainer%destroy()
    call model%destroy()
    call runtime%destroy()
  end subroutine

end module
