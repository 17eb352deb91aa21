// What test programs share: cmake/LockstepTesting.cmake gives it its headers.
int main() {}
