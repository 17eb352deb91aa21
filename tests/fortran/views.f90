! What lockstep_array(x) views, read back element by element. Stops with 1 at the first thing that
! is not as expected.
program views
  use lockstep
  use iso_c_binding
  implicit none

  type :: place
    integer(int32) :: number
    real(real64) :: height
  end type
  type :: particle
    real(real32) :: x, y, z
    integer :: kind
    real(real64) :: mass
    type(place) :: at
  end type

  type(particle), target :: particles(6), grid(4, 3)
  type(particle), allocatable, target :: many(:)
  type(particle), pointer :: pointed(:)
  real(real32), target :: table(4, 3), cube(4, 3, 2), line(4), five(2, 2, 2, 2, 2), one
  real(real32), allocatable, target :: allocated(:, :)
  real(real64), target :: wide(4, 3)
  integer(int64), target :: long(5)
  integer, target :: labels(5)
  complex(real32), target :: waves(4, 3)
  complex(real64), target :: wide_waves(4)
  integer :: i, j, k

  do j = 1, 3
    do i = 1, 4
      table(i, j) = 10 * i + j
      grid(i, j)%z = 10 * i + j
      grid(i, j)%mass = 20 * i + j
    end do
  end do
  cube(:, :, 1) = table
  cube(:, :, 2) = table + 100
  five = reshape([(real(i, real32), i = 1, 32)], [2, 2, 2, 2, 2])
  wide = table + 0.5_real64
  waves = cmplx(table, -table)
  wide_waves = cmplx(wide(:, 1), wide(:, 2), real64)
  line = table(:, 1)
  long = [(1000 + i, i = 1, 5)]
  labels = [(i, i = 1, 5)]
  one = 7
  do i = 1, 6
    particles(i) = particle(i, 10 * i, 100 * i, i, 0.5 * i, place(-i, 0.25 * i))
  end do
  allocated = table
  allocate (many(6))
  many = particles
  pointed => particles(6:1:-2)

  call expect(lockstep_array(one), [integer ::], [7d0], "a scalar")
  call expect(lockstep_array(line), [4], dble(line), "line")
  call expect(lockstep_array(line(2:1)), [0], [real(real64) ::], "nothing of line")
  call expect(lockstep_array(table), [4, 3], flat(dble(table)), "table")
  call expect(lockstep_array(table, reversed=.true.), [3, 4], flat(transpose(dble(table))), "turned")
  call expect(lockstep_array(table, reversed=.false.), [4, 3], flat(dble(table)), "not reversed")
  call expect(lockstep_array(table(2:4:2, :)), [2, 3], flat(dble(table(2:4:2, :))), "stride 2")
  call expect(lockstep_array(table(4:1:-2, :)), [2, 3], flat(dble(table(4:1:-2, :))), "stride -2")
  call expect(lockstep_array(table(:, 3:1:-1)), [4, 3], flat(dble(table(:, 3:1:-1))), "backward")
  call expect(lockstep_array(table(4:1:-1, 3:1:-2), reversed=.true.), [2, 4], &
      flat(transpose(dble(table(4:1:-1, 3:1:-2)))), "both back, reversed")
  call expect(lockstep_array(cube(2, :, :)), [3, 2], flat(dble(cube(2, :, :))), "slice")
  call expect(lockstep_array(five), [2, 2, 2, 2, 2], [(dble(i), i = 1, 32)], "five")
  call expect(lockstep_array(wide), [4, 3], flat(wide), "real64")
  call expect(lockstep_array(long(5:1:-2)), [3], dble(long(5:1:-2)), "int64")
  call expect(lockstep_array(labels), [5], dble(labels), "default integers")
  call expect(lockstep_array(allocated(:, 2)), [4], dble(allocated(:, 2)), "allocated")
  call expect(lockstep_array(particles%z), [6], dble(particles%z), "particles%z")
  call expect(lockstep_array(particles%kind), [6], dble(particles%kind), "particles%kind")
  call expect(lockstep_array(particles%mass), [6], particles%mass, "particles%mass")
  call expect(lockstep_array(particles%at%height), [6], particles%at%height, "particles%at%height")
  call expect(lockstep_array(particles(6:1:-3)%y), [2], dble(particles(6:1:-3)%y), "some %y")
  call expect(lockstep_array(grid%z), [4, 3], flat(dble(grid%z)), "grid%z")
  call expect(lockstep_array(grid(4:1:-1, 2)%mass), [4], grid(4:1:-1, 2)%mass, "a column")
  call expect(lockstep_array(many%z), [6], dble(many%z), "many%z")
  call expect(lockstep_array(many%x), [6], dble(many%x), "many%x")
  call expect(lockstep_array(pointed%mass), [3], pointed%mass, "pointed%mass")
  call expect(lockstep_array(waves%re), [4, 3], flat(dble(waves%re)), "waves%re")
  call expect(lockstep_array(waves(:, 2)%im), [4], dble(waves(:, 2)%im), "waves%im")
  call expect(lockstep_array(wide_waves%im), [4], wide_waves%im, "wide_waves%im")
  call passed_on(table, particles, 4, 3)
  print "(a)", "all as expected"

contains

  !> Arrays that a subroutine has been given, whole and as sections.
  subroutine passed_on(assumed, group, rows, columns)
    integer, intent(in) :: rows, columns
    real(real32), target :: assumed(:, :)
    type(particle), target :: group(:)
    call expect(lockstep_array(assumed), [4, 3], flat(dble(assumed)), "assumed shape")
    call expect(lockstep_array(assumed(:, 3:1:-2)), [4, 2], flat(dble(assumed(:, 3:1:-2))), "a part")
    call expect(lockstep_array(group%z), [6], dble(group%z), "a component of an assumed shape")
    call of_size(assumed, rows, columns)
    call of_section(assumed(::2, :), group(::2))
  end subroutine

  subroutine of_size(given, rows, columns)
    integer, intent(in) :: rows, columns
    real(real32), target :: given(rows, columns)
    call expect(lockstep_array(given), [4, 3], flat(dble(given)), "explicit shape")
  end subroutine

  subroutine of_section(given, group)
    real(real32), target :: given(:, :)
    type(particle), target :: group(:)
    call expect(lockstep_array(given), [2, 3], flat(dble(given)), "a section that was given")
    call expect(lockstep_array(group%mass), [3], group%mass, "a component of a given section")
  end subroutine

  function flat(values)
    real(real64), intent(in) :: values(:, :)
    real(real64) :: flat(size(values))
    flat = reshape(values, [size(values)])
  end function

  !> `values`: in the order of Fortran, the first index fastest.
  subroutine expect(view, sizes, values, what)
    type(lockstep_array), intent(in) :: view
    integer, intent(in) :: sizes(:)
    real(real64), intent(in) :: values(:)
    character(len=*), intent(in) :: what
    integer :: n, d, rest
    integer(int64) :: offset
    logical :: holds
    holds = view%dtype >= 1 .and. view%rank == size(sizes)
    if (holds) holds = all(view%shape(:size(sizes)) == sizes)
    do n = 1, size(values)
      if (.not. holds) exit
      rest = n - 1
      offset = 0
      do d = 1, size(sizes)
        offset = offset + mod(rest, sizes(d)) * view%strides(d)
        rest = rest / sizes(d)
      end do
      holds = element(view, offset) == values(n)
    end do
    if (holds) return
    print "(3a, 9i6)", "not as expected: ", what, ": ", view%dtype, view%rank, &
        view%shape(:size(sizes)), view%strides(:size(sizes))
    error stop 1
  end subroutine

  real(real64) function element(view, offset)
    type(lockstep_array), intent(in) :: view
    integer(int64), intent(in) :: offset
    real(real32), pointer :: single
    real(real64), pointer :: double
    integer(int32), pointer :: short
    integer(int64), pointer :: long
    select case (view%dtype)
    case (1)
      call c_f_pointer(address(view%data, 4 * offset), single)
      element = single
    case (2)
      call c_f_pointer(address(view%data, 8 * offset), double)
      element = double
    case (3)
      call c_f_pointer(address(view%data, 4 * offset), short)
      element = short
    case default
      call c_f_pointer(address(view%data, 8 * offset), long)
      element = dble(long)
    end select
  end function

  function address(from, bytes)
    type(c_ptr), intent(in) :: from
    integer(int64), intent(in) :: bytes
    type(c_ptr) :: address
    address = transfer(transfer(from, 0_int64) + bytes, address)
  end function
end program
