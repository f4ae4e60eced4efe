// Preloaded, it makes the ioctl that fetches a camera's frame hang for as long as /run/hang is there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

// visiond's ioctls on cameras go through this function of the C library's, not through ioctl().
long syscall(long number, ...) {
  static long (*original)(long, ...);
  long argument[6];
  va_list rest;
  va_start(rest, number);
  for (int i = 0; i < 6; i++) argument[i] = va_arg(rest, long);
  va_end(rest);
  if (!original) original = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  const unsigned int dequeue = 0xc0585611;  // VIDIOC_DQBUF of a 64-bit kernel
  while (number == SYS_ioctl && (unsigned int)argument[1] == dequeue && access("/run/hang", F_OK) == 0) usleep(100000);
  return original(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
