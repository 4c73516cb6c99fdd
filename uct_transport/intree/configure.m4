# SPDX-License-Identifier: BSD-3-Clause
#
# The Angara transport inside a UCX tree: --with-angara[=PREFIX of libangara].

angara_happy="no"
AC_ARG_WITH([angara],
    [AS_HELP_STRING([--with-angara=(DIR)], [Build the Angara transport with libangara in DIR])],
    [], [with_angara=guess])

AS_IF([test "x$with_angara" != "xno"],
    [save_CPPFLAGS="$CPPFLAGS"
     save_LDFLAGS="$LDFLAGS"
     save_LIBS="$LIBS"

     ANGARA_CPPFLAGS=""
     ANGARA_LDFLAGS=""
     AS_IF([test "x$with_angara" != "xguess" -a "x$with_angara" != "xyes"],
         [ANGARA_CPPFLAGS="-I$with_angara/include"
          ANGARA_LDFLAGS="-L$with_angara/lib"])

     CPPFLAGS="$ANGARA_CPPFLAGS $CPPFLAGS"
     LDFLAGS="$ANGARA_LDFLAGS $LDFLAGS"
     AC_CHECK_HEADER([angara/angara_fast.h],
         [AC_CHECK_LIB([angara], [angara_version], [angara_happy="yes"])])

     CPPFLAGS="$save_CPPFLAGS"
     LDFLAGS="$save_LDFLAGS"
     LIBS="$save_LIBS"

     AS_IF([test "x$angara_happy" = "xyes"],
         [AC_SUBST([ANGARA_CPPFLAGS])
          AC_SUBST([ANGARA_LDFLAGS])
          uct_modules="${uct_modules}:angara"],
         [test "x$with_angara" != "xguess"],
         [AC_MSG_ERROR([Angara transport requested, but libangara was not found])])])

AM_CONDITIONAL([HAVE_ANGARA], [test "x$angara_happy" = "xyes"])
AC_CONFIG_FILES([src/uct/angara/Makefile])
