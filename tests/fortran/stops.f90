! Without stat an error stops the program with its message and its code.
program stops
  use lockstep
  implicit none
  type(lockstep_runtime) :: runtime
  call runtime%create("sed=1")
  print "(a)", "not reached"
end program
