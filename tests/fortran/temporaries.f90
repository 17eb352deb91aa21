! Compiles with a variable for VIEWED, and not with anything that the compiler would copy.
program temporaries
  use lockstep
  implicit none
  real(real32), target :: x(8, 3)
  real(real64), target :: wide(8, 3)
  real(real32), target, allocatable :: other(:, :)
  integer :: rows(8)
  type(lockstep_array) :: view
  view = lockstep_array(VIEWED)
contains
  subroutine given(fixed)
    real(real32), target, intent(in) :: fixed(:, :)
    view = lockstep_array(VIEWED_IN_A_SUBROUTINE)
  end subroutine

  function result_of(a)
    real(real32), intent(in) :: a(:, :)
    real(real32) :: result_of(size(a, 1), size(a, 2))
    result_of = a
  end function
end program
