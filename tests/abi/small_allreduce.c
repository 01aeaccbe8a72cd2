/* abi/small_allreduce.c: small allreduces of two ranks; prints the process of the rank that call_files.sh looks at. */
#include <gsel/gsel.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
/* One rank calls when the other has posted its header: nothing waits, and valgrind sees the files of the call alone. */
int main(void) {
  gsel_unique_id id;
  if (gsel_unique_id_create(&id, NULL)) return 1;
  const pid_t other = fork();
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = other != 0;
  options.world_size = 2;
  options.id = &id;
  gsel_comm* comm;
  float x[2] = {1, 2};
  if (gsel_comm_init(&options, &comm, NULL)) return 1;
  for (int i = 0; i < 10; ++i) {
    if (other) usleep(20000); /* the other has posted its header */
    if (gsel_allreduce(comm, x, x, 2, GSEL_F32, GSEL_MAX, NULL)) return 1;
  }
  gsel_comm_free(comm);
  if (other) printf("%d\n", (int)getpid());
  return other && waitpid(other, NULL, 0) < 0;
}
