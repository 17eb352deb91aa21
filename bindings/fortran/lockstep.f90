!> Trains a model that was exported from Python, on the arrays of a Fortran program.
!>
!>   use lockstep
!>   type(lockstep_runtime) :: runtime
!>   type(lockstep_model) :: model
!>   type(lockstep_trainer) :: trainer
!>   real(real32), target :: points(64, 3), values(64, 1)
!>   call runtime%create("seed=1", comm=MPI_COMM_WORLD)
!>   call model%load(runtime, "model.pt2")
!>   call trainer%create(runtime, model, "loss=mse optimizer=AdamW optimizer.lr=1e-3")
!>   call trainer%step([lockstep_array(points)], lockstep_array(values))
!>
!> The functions are those of the C interface (lockstep/c/lockstep.h), which says what they do, which
!> ranks call them, and which options there are.
!>
!> Arrays: lockstep_array(x) is a view of x, of rank 0 to 8 and type real(real32), real(real64),
!> integer(int32) or integer(int64). Sections with any stride and components of derived types are
!> views, too. What would be a temporary copy does not compile: x(rows, :), reshape(x, ...), x * 2,
!> (x), the result of a function. Nor does a dummy argument with intent(in): leave the intent out.
!> Write a(:)%mass, not a%mass, if a is allocatable or a pointer: gfortran 12 passes a wrong address.
!> Element x(i, j) is element [i, j] of the tensor; with reversed=.true. it is element [j, i], so
!> that x(features, samples) is a batch of samples that lies in memory as LibTorch's own. x has the
!> attribute target, and lives as long as the view.
!> Errors: each subroutine has the optional arguments stat (0, or a code such as lockstep_data) and
!> errmsg. Without stat, an error prints its message and stops the program with its code.
!> Objects: destroy() or the end of their scope ends them; the main program calls destroy() before
!> MPI_Finalize. Do not assign one to another.
module lockstep
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
  implicit none
  private

  integer, parameter, public :: lockstep_ok = 0, lockstep_usage = 2, lockstep_environment = 3, &
      lockstep_data = 10, lockstep_snapshot = 11, lockstep_peer_lost = 20, lockstep_diverged = 21, &
      lockstep_non_finite = 22, lockstep_out_of_memory = 23, lockstep_preempted = 75
  public :: real32, real64, int32, int64
  public :: lockstep_array, lockstep_report, lockstep_runtime, lockstep_model, lockstep_trainer, &
      lockstep_buffer, lockstep_data_parallel, lockstep_scaler, lockstep_scale

  integer, parameter :: MAX_RANK = 8

  !> A view of an array.
  type, bind(C) :: lockstep_array
    type(c_ptr) :: data = c_null_ptr
    integer(c_int) :: dtype = 0, rank = 0
    integer(c_int64_t) :: shape(MAX_RANK) = 0, strides(MAX_RANK) = 0
  end type

  interface lockstep_array  ! array.c
    function view_of(x, reversed) bind(C, name="lockstep_fortran_array") result(array)
      import
      type(*), target, intent(inout) :: x(..)  ! inout: the compiler passes no temporary
      logical, intent(in), optional :: reversed
      type(lockstep_array) :: array
    end function
  end interface

  !> The values of a step. The flags are 0 or 1.
  type, bind(C) :: lockstep_report
    integer(c_int) :: closes_update, skipped, all_out_of_data, stop_requested
    integer(c_int64_t) :: update, micro_batch
    real(c_double) :: loss, grad_norm, scale, learning_rate
  end type

  !> A loss scale and its counters.
  type, bind(C) :: lockstep_scale
    real(c_double) :: scale
    integer(c_int64_t) :: growth_tracker, hysteresis_tracker, consecutive_skips, iteration, &
        last_overflow, skipped
  end type

  type :: lockstep_runtime
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => runtime_create
    procedure :: rank => runtime_rank
    procedure :: size => runtime_size
    procedure :: destroy => runtime_destroy
    final :: runtime_final
  end type

  type :: lockstep_model
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: load => model_load
    procedure :: infer => model_infer
    procedure :: destroy => model_destroy
    final :: model_final
  end type

  type :: lockstep_trainer
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => trainer_create
    procedure :: step => trainer_step
    procedure :: step_from => trainer_step_from
    procedure :: step_without_data => trainer_step_without_data
    procedure :: report => trainer_report
    procedure :: infer => trainer_infer
    procedure :: evaluate => trainer_evaluate
    procedure :: state => trainer_state
    procedure :: save => trainer_save
    procedure :: finish_saving => trainer_finish_saving
    procedure :: resume => trainer_resume
    procedure :: load_weights => trainer_load_weights
    procedure :: set_learning_rate => trainer_set_learning_rate
    procedure :: request_stop => trainer_request_stop
    procedure :: stop_on_signals => trainer_stop_on_signals
    procedure :: save_and_leave => trainer_save_and_leave
    procedure :: destroy => trainer_destroy
    final :: trainer_final
  end type

  type :: lockstep_buffer
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => buffer_create
    procedure :: push => buffer_push
    procedure :: size => buffer_size
    procedure :: destroy => buffer_destroy
    final :: buffer_final
  end type

  !> For a loop of the program's own: averages gradients over the ranks.
  type :: lockstep_data_parallel
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => data_parallel_create
    procedure :: average => data_parallel_average
    procedure :: destroy => data_parallel_destroy
    final :: data_parallel_final
  end type

  !> For a loop of the program's own: a loss scale that all ranks share.
  type :: lockstep_scaler
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => scaler_create
    procedure :: unscale => scaler_unscale
    procedure :: update => scaler_update
    procedure :: state => scaler_state
    procedure :: load => scaler_load
    procedure :: destroy => scaler_destroy
    final :: scaler_final
  end type

  interface
    function c_last_error() bind(C, name="lockstep_last_error") result(text)
      import
      type(c_ptr) :: text
    end function
    function c_strlen(text) bind(C, name="strlen") result(length)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
    function c_runtime_create(runtime, options) bind(C, name="lockstep_runtime_create") result(code)
      import
      type(c_ptr), intent(inout) :: runtime
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int) :: code
    end function
    function c_runtime_create_on_fortran(runtime, comm, options) &
        bind(C, name="lockstep_runtime_create_on_fortran") result(code)
      import
      type(c_ptr), intent(inout) :: runtime
      integer(c_int), value :: comm
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int) :: code
    end function
    function c_runtime_rank(runtime) bind(C, name="lockstep_runtime_rank") result(rank)
      import
      type(c_ptr), value :: runtime
      integer(c_int) :: rank
    end function
    function c_runtime_size(runtime) bind(C, name="lockstep_runtime_size") result(size)
      import
      type(c_ptr), value :: runtime
      integer(c_int) :: size
    end function
    function c_model_load(model, runtime, path, options) &
        bind(C, name="lockstep_model_load_with") result(code)
      import
      type(c_ptr), intent(inout) :: model
      type(c_ptr), value :: runtime
      character(kind=c_char), intent(in) :: path(*), options(*)
      integer(c_int) :: code
    end function
    function c_trainer_create(trainer, runtime, model, options) &
        bind(C, name="lockstep_trainer_create") result(code)
      import
      type(c_ptr), intent(inout) :: trainer
      type(c_ptr), value :: runtime, model
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int) :: code
    end function
    function c_trainer_step(trainer, inputs, count, wanted) &
        bind(C, name="lockstep_trainer_step") result(code)
      import
      type(c_ptr), value :: trainer, wanted
      type(lockstep_array), intent(in) :: inputs(*)
      integer(c_int), value :: count
      integer(c_int) :: code
    end function
    function c_trainer_report(trainer, report) bind(C, name="lockstep_trainer_report") result(code)
      import
      type(c_ptr), value :: trainer
      type(lockstep_report), intent(inout) :: report
      integer(c_int) :: code
    end function
    function c_trainer_evaluate(trainer, inputs, count, wanted, loss) &
        bind(C, name="lockstep_trainer_evaluate") result(code)
      import
      type(c_ptr), value :: trainer, wanted
      type(lockstep_array), intent(in) :: inputs(*)
      integer(c_int), value :: count
      real(c_double), intent(inout) :: loss
      integer(c_int) :: code
    end function
    function c_trainer_state(trainer, name, array) bind(C, name="lockstep_trainer_state") result(code)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*)
      type(lockstep_array), intent(in) :: array
      integer(c_int) :: code
    end function
    function c_trainer_resume(trainer, folder, update) &
        bind(C, name="lockstep_trainer_resume") result(code)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: folder(*)
      integer(c_int64_t), intent(inout) :: update
      integer(c_int) :: code
    end function
    function c_trainer_load_weights(trainer, path) &
        bind(C, name="lockstep_trainer_load_weights") result(code)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int) :: code
    end function
    function c_trainer_set_learning_rate(trainer, rate) &
        bind(C, name="lockstep_trainer_set_learning_rate") result(code)
      import
      type(c_ptr), value :: trainer
      real(c_double), value :: rate
      integer(c_int) :: code
    end function
    function c_trainer_step_from(trainer, buffer) &
        bind(C, name="lockstep_trainer_step_from") result(code)
      import
      type(c_ptr), value :: trainer, buffer
      integer(c_int) :: code
    end function
    function c_buffer_create(buffer, trainer, name, like, count, options) &
        bind(C, name="lockstep_buffer_create") result(code)
      import
      type(c_ptr), intent(inout) :: buffer
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*), options(*)
      type(lockstep_array), intent(in) :: like(*)
      integer(c_int), value :: count
      integer(c_int) :: code
    end function
    function c_buffer_push(buffer, sample, count) bind(C, name="lockstep_buffer_push") result(code)
      import
      type(c_ptr), value :: buffer
      type(lockstep_array), intent(in) :: sample(*)
      integer(c_int), value :: count
      integer(c_int) :: code
    end function
    function c_buffer_size(buffer) bind(C, name="lockstep_buffer_size") result(size)
      import
      type(c_ptr), value :: buffer
      integer(c_int) :: size
    end function
    function c_trainer_step_without_data(trainer) &
        bind(C, name="lockstep_trainer_step_without_data") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_trainer_save(trainer) &
        bind(C, name="lockstep_trainer_save") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_trainer_finish_saving(trainer) &
        bind(C, name="lockstep_trainer_finish_saving") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_trainer_request_stop(trainer) &
        bind(C, name="lockstep_trainer_request_stop") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_trainer_stop_on_signals(trainer) &
        bind(C, name="lockstep_trainer_stop_on_signals") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_trainer_save_and_leave(trainer) &
        bind(C, name="lockstep_trainer_save_and_leave") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_runtime_destroy(runtime) bind(C, name="lockstep_runtime_destroy") result(code)
      import
      type(c_ptr), value :: runtime
      integer(c_int) :: code
    end function
    function c_model_destroy(model) bind(C, name="lockstep_model_destroy") result(code)
      import
      type(c_ptr), value :: model
      integer(c_int) :: code
    end function
    function c_trainer_destroy(trainer) bind(C, name="lockstep_trainer_destroy") result(code)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: code
    end function
    function c_buffer_destroy(buffer) bind(C, name="lockstep_buffer_destroy") result(code)
      import
      type(c_ptr), value :: buffer
      integer(c_int) :: code
    end function
    function c_model_infer(model, inputs, input_count, outputs, output_count) &
        bind(C, name="lockstep_model_infer") result(code)
      import
      type(c_ptr), value :: model
      type(lockstep_array), intent(in) :: inputs(*), outputs(*)
      integer(c_int), value :: input_count, output_count
      integer(c_int) :: code
    end function
    function c_trainer_infer(trainer, inputs, input_count, outputs, output_count) &
        bind(C, name="lockstep_trainer_infer") result(code)
      import
      type(c_ptr), value :: trainer
      type(lockstep_array), intent(in) :: inputs(*), outputs(*)
      integer(c_int), value :: input_count, output_count
      integer(c_int) :: code
    end function
    function c_data_parallel_create(parallel, runtime, weights, count, options) &
        bind(C, name="lockstep_data_parallel_create") result(code)
      import
      type(c_ptr), intent(inout) :: parallel
      type(c_ptr), value :: runtime
      type(lockstep_array), intent(in) :: weights(*)
      integer(c_int), value :: count
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int) :: code
    end function
    function c_data_parallel_average(parallel, gradients, count) &
        bind(C, name="lockstep_data_parallel_average") result(code)
      import
      type(c_ptr), value :: parallel
      type(lockstep_array), intent(in) :: gradients(*)
      integer(c_int), value :: count
      integer(c_int) :: code
    end function
    function c_data_parallel_destroy(parallel) &
        bind(C, name="lockstep_data_parallel_destroy") result(code)
      import
      type(c_ptr), value :: parallel
      integer(c_int) :: code
    end function
    function c_scaler_create(scaler, runtime, options) &
        bind(C, name="lockstep_scaler_create") result(code)
      import
      type(c_ptr), intent(inout) :: scaler
      type(c_ptr), value :: runtime
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int) :: code
    end function
    function c_scaler_unscale(scaler, gradients, count, finite) &
        bind(C, name="lockstep_scaler_unscale") result(code)
      import
      type(c_ptr), value :: scaler
      type(lockstep_array), intent(in) :: gradients(*)
      integer(c_int), value :: count
      integer(c_int), intent(inout) :: finite
      integer(c_int) :: code
    end function
    function c_scaler_update(scaler) bind(C, name="lockstep_scaler_update") result(code)
      import
      type(c_ptr), value :: scaler
      integer(c_int) :: code
    end function
    function c_scaler_state(scaler, state) bind(C, name="lockstep_scaler_state") result(code)
      import
      type(c_ptr), value :: scaler
      type(lockstep_scale), intent(inout) :: state
      integer(c_int) :: code
    end function
    function c_scaler_load(scaler, state) bind(C, name="lockstep_scaler_load") result(code)
      import
      type(c_ptr), value :: scaler
      type(lockstep_scale), intent(in) :: state
      integer(c_int) :: code
    end function
    function c_scaler_destroy(scaler) bind(C, name="lockstep_scaler_destroy") result(code)
      import
      type(c_ptr), value :: scaler
      integer(c_int) :: code
    end function
  end interface

contains

  !> Returns the result of a call in stat and errmsg; without stat, an error ends the program.
  subroutine conclude(code, stat, errmsg)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    if (present(stat)) stat = int(code)
    if (code == 0) return
    if (present(errmsg)) errmsg = last_error()
    if (present(stat)) return
    write (error_unit, "(a)") "lockstep: " // last_error()
    flush (error_unit)
    error stop int(code), quiet=.true.
  end subroutine

  function last_error() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: place
    integer :: i
    place = c_last_error()
    call c_f_pointer(place, letters, [c_strlen(place)])
    allocate (character(len=size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  function c_text(text) result(copy)
    character(len=*), intent(in), optional :: text
    character(len=:, kind=c_char), allocatable :: copy
    copy = c_null_char
    if (present(text)) copy = trim(text) // c_null_char
  end function

  subroutine runtime_create(self, options, comm, stat, errmsg)
    class(lockstep_runtime), intent(inout) :: self
    character(len=*), intent(in), optional :: options
    integer, intent(in), optional :: comm
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call self%destroy()
    if (present(comm)) then
      call conclude(c_runtime_create_on_fortran(self%handle, int(comm, c_int), c_text(options)), &
          stat, errmsg)
    else
      call conclude(c_runtime_create(self%handle, c_text(options)), stat, errmsg)
    end if
  end subroutine

  integer function runtime_rank(self)
    class(lockstep_runtime), intent(in) :: self
    runtime_rank = c_runtime_rank(self%handle)
  end function

  integer function runtime_size(self)
    class(lockstep_runtime), intent(in) :: self
    runtime_size = c_runtime_size(self%handle)
  end function

  !> Options: those of lockstep_model_load_with(), as in options="without_no_grad=true".
  subroutine model_load(self, runtime, path, stat, errmsg, options)
    class(lockstep_model), intent(inout) :: self
    type(lockstep_runtime), intent(in) :: runtime
    character(len=*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: options
    call self%destroy()
    call conclude(c_model_load(self%handle, runtime%handle, c_text(path), c_text(options)), &
        stat, errmsg)
  end subroutine

  subroutine trainer_create(self, runtime, model, options, stat, errmsg)
    class(lockstep_trainer), intent(inout) :: self
    type(lockstep_runtime), intent(in) :: runtime
    type(lockstep_model), intent(in) :: model
    character(len=*), intent(in) :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call self%destroy()
    call conclude(c_trainer_create(self%handle, runtime%handle, model%handle, c_text(options)), &
        stat, errmsg)
  end subroutine

  subroutine trainer_step(self, inputs, target, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    type(lockstep_array), intent(in) :: inputs(:)
    type(lockstep_array), intent(in), target, optional :: target
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_step(self%handle, inputs, size(inputs), place(target)), stat, errmsg)
  end subroutine

  function place(array)
    type(lockstep_array), intent(in), target, optional :: array
    type(c_ptr) :: place
    place = c_null_ptr
    if (present(array)) place = c_loc(array)
  end function

  subroutine trainer_report(self, report, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    type(lockstep_report), intent(inout) :: report
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_report(self%handle, report), stat, errmsg)
  end subroutine

  subroutine trainer_evaluate(self, inputs, target, loss, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    type(lockstep_array), intent(in) :: inputs(:)
    type(lockstep_array), intent(in), target, optional :: target
    real(real64), intent(inout) :: loss
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_evaluate(self%handle, inputs, size(inputs), place(target), loss), stat, &
        errmsg)
  end subroutine

  !> The array that `array` views must have the attribute target, and live as long as the trainer.
  subroutine trainer_state(self, name, array, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    character(len=*), intent(in) :: name
    type(lockstep_array), intent(in) :: array
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_state(self%handle, c_text(name), array), stat, errmsg)
  end subroutine

  !> `update`: the number of updates of the snapshot, -1 if there is none.
  subroutine trainer_resume(self, folder, update, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    character(len=*), intent(in), optional :: folder
    integer(int64), intent(out), optional :: update
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: found
    found = -1
    call conclude(c_trainer_resume(self%handle, c_text(folder), found), stat, errmsg)
    if (present(update)) update = found
  end subroutine

  subroutine trainer_load_weights(self, path, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    character(len=*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_load_weights(self%handle, c_text(path)), stat, errmsg)
  end subroutine

  subroutine trainer_set_learning_rate(self, rate, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    real(real64), intent(in) :: rate
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_set_learning_rate(self%handle, rate), stat, errmsg)
  end subroutine

  subroutine trainer_step_from(self, buffer, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    type(lockstep_buffer), intent(in) :: buffer
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_step_from(self%handle, buffer%handle), stat, errmsg)
  end subroutine

  subroutine buffer_create(self, trainer, name, like, options, stat, errmsg)
    class(lockstep_buffer), intent(inout) :: self
    type(lockstep_trainer), intent(in) :: trainer
    character(len=*), intent(in) :: name
    type(lockstep_array), intent(in) :: like(:)
    character(len=*), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call self%destroy()
    call conclude(c_buffer_create(self%handle, trainer%handle, c_text(name), like, size(like), &
        c_text(options)), stat, errmsg)
  end subroutine

  subroutine buffer_push(self, sample, stat, errmsg)
    class(lockstep_buffer), intent(in) :: self
    type(lockstep_array), intent(in) :: sample(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_buffer_push(self%handle, sample, size(sample)), stat, errmsg)
  end subroutine

  integer function buffer_size(self)
    class(lockstep_buffer), intent(in) :: self
    buffer_size = c_buffer_size(self%handle)
  end function

  subroutine trainer_step_without_data(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_step_without_data(self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_save(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_save(self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_finish_saving(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_finish_saving(self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_request_stop(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_request_stop(self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_stop_on_signals(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_stop_on_signals(self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_save_and_leave(self, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_save_and_leave(self%handle), stat, errmsg)
  end subroutine

  subroutine model_infer(self, inputs, outputs, stat, errmsg)
    class(lockstep_model), intent(in) :: self
    type(lockstep_array), intent(in) :: inputs(:), outputs(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_model_infer(self%handle, inputs, size(inputs), outputs, size(outputs)), stat, &
        errmsg)
  end subroutine

  subroutine trainer_infer(self, inputs, outputs, stat, errmsg)
    class(lockstep_trainer), intent(in) :: self
    type(lockstep_array), intent(in) :: inputs(:), outputs(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_trainer_infer(self%handle, inputs, size(inputs), outputs, size(outputs)), stat, &
        errmsg)
  end subroutine

  subroutine runtime_destroy(self, stat, errmsg)
    class(lockstep_runtime), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_runtime_destroy(handle), stat, errmsg)
  end subroutine

  subroutine runtime_final(self)
    type(lockstep_runtime), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine model_destroy(self, stat, errmsg)
    class(lockstep_model), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_model_destroy(handle), stat, errmsg)
  end subroutine

  subroutine model_final(self)
    type(lockstep_model), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine trainer_destroy(self, stat, errmsg)
    class(lockstep_trainer), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_trainer_destroy(handle), stat, errmsg)
  end subroutine

  subroutine trainer_final(self)
    type(lockstep_trainer), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine buffer_destroy(self, stat, errmsg)
    class(lockstep_buffer), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_buffer_destroy(handle), stat, errmsg)
  end subroutine

  subroutine buffer_final(self)
    type(lockstep_buffer), intent(inout) :: self
    call self%destroy()
  end subroutine

  !> The arrays that `weights` views must have the attribute target, and live as long as the object.
  subroutine data_parallel_create(self, runtime, weights, options, stat, errmsg)
    class(lockstep_data_parallel), intent(inout) :: self
    type(lockstep_runtime), intent(in) :: runtime
    type(lockstep_array), intent(in) :: weights(:)
    character(len=*), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call self%destroy()
    call conclude(c_data_parallel_create(self%handle, runtime%handle, weights, size(weights), &
        c_text(options)), stat, errmsg)
  end subroutine

  subroutine data_parallel_average(self, gradients, stat, errmsg)
    class(lockstep_data_parallel), intent(in) :: self
    type(lockstep_array), intent(in) :: gradients(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_data_parallel_average(self%handle, gradients, size(gradients)), stat, errmsg)
  end subroutine

  subroutine data_parallel_destroy(self, stat, errmsg)
    class(lockstep_data_parallel), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_data_parallel_destroy(handle), stat, errmsg)
  end subroutine

  subroutine data_parallel_final(self)
    type(lockstep_data_parallel), intent(inout) :: self
    call self%destroy()
  end subroutine

  subroutine scaler_create(self, runtime, options, stat, errmsg)
    class(lockstep_scaler), intent(inout) :: self
    type(lockstep_runtime), intent(in) :: runtime
    character(len=*), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call self%destroy()
    call conclude(c_scaler_create(self%handle, runtime%handle, c_text(options)), stat, errmsg)
  end subroutine

  !> `finite`: .false. if a gradient is not finite on some rank; then no rank updates its weights.
  subroutine scaler_unscale(self, gradients, finite, stat, errmsg)
    class(lockstep_scaler), intent(in) :: self
    type(lockstep_array), intent(in) :: gradients(:)
    logical, intent(out) :: finite
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int) :: is_finite
    is_finite = 0
    call conclude(c_scaler_unscale(self%handle, gradients, size(gradients), is_finite), stat, &
        errmsg)
    finite = is_finite /= 0
  end subroutine

  subroutine scaler_update(self, stat, errmsg)
    class(lockstep_scaler), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_scaler_update(self%handle), stat, errmsg)
  end subroutine

  subroutine scaler_state(self, state, stat, errmsg)
    class(lockstep_scaler), intent(in) :: self
    type(lockstep_scale), intent(inout) :: state
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_scaler_state(self%handle, state), stat, errmsg)
  end subroutine

  subroutine scaler_load(self, state, stat, errmsg)
    class(lockstep_scaler), intent(in) :: self
    type(lockstep_scale), intent(in) :: state
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call conclude(c_scaler_load(self%handle, state), stat, errmsg)
  end subroutine

  subroutine scaler_destroy(self, stat, errmsg)
    class(lockstep_scaler), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call conclude(c_scaler_destroy(handle), stat, errmsg)
  end subroutine

  subroutine scaler_final(self)
    type(lockstep_scaler), intent(inout) :: self
    call self%destroy()
  end subroutine

end module
