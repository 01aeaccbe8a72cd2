/* nets/table.h: the public functions as data, as generate.cc reads them from the headers: what each is called with, and
 * what stands in the structs that are passed. A call takes the addresses of its arguments. */
#ifndef GSEL_TESTS_NETS_TABLE_H
#define GSEL_TESTS_NETS_TABLE_H

#include <gsel/gsel.h>

typedef enum net_kind {
  NET_NUMBER,   /* an integer */
  NET_REAL,     /* a floating-point number */
  NET_STR,      /* gsel_str */
  NET_TEXT,     /* const char* */
  NET_FUNCTION, /* a callback */
  NET_HANDLE,   /* a pointer to an opaque type */
  NET_RECORD,   /* a pointer to a transparent struct */
  NET_OUT,      /* where a pointer is written to */
  NET_LIST,     /* pointers, one behind the other */
  NET_BUFFER,   /* memory: void, numbers, characters */
  NET_ERROR     /* gsel_error** */
} net_kind;

struct net_record;

/* A parameter, or a field of a struct. */
typedef struct net_variable {
  const char* name;
  const char* type; /* without const and stars */
  net_kind kind;
  uint32_t bytes; /* of a number, or of an element of a buffer */
  uint32_t offset;
  int is_signed;
  const struct net_record* record; /* that a NET_RECORD or the pointers of a NET_LIST point to */
  void (*no_op)(void);             /* a callback that does nothing */
} net_variable;

typedef struct net_record {
  const char* name;
  uint32_t bytes;
  int n_fields;
  const net_variable* fields;
} net_record;

typedef enum net_result { NET_VOID, NET_STATUS, NET_GSEL_STR, NET_C_TEXT, NET_ANSWER } net_result;

/* What came back; `status` and `text` of the results that have them. */
typedef struct net_answer {
  gsel_status status;
  gsel_str text;
  const char* c_text;
} net_answer;

typedef struct net_function {
  const char* name;
  net_result result;
  void (*call)(void* const* arguments, net_answer* answer);
  int n_parameters;
  const net_variable* parameters;
} net_function;

extern const net_function net_functions[];
extern const int net_n_functions;

#endif
