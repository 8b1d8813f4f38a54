"""What ddpify is about to write into a project, so that it can be finished or taken back.

It stands in the project, as ``.ddpify``: on the disk of the files (a backup there can be moved
into place even if the disk is full), there for whoever works on the project next, and moved and
deleted with it. Of a copy, or in a project that was downloaded, it is not believed. Its own
``.gitignore`` hides it from git; no command of ddpify reads hidden folders.

=================  ==============================================================
``lock``           held while something is written; a process that dies lets go of it
``preparing``      backups before anything is touched, or what is thrown away: garbage
``writing``        files are being exchanged: finished or taken back by the next command
``undo/N``         a write that was finished, for ``ddpify undo``
``kept/N``         backups of files that somebody changed before they could be taken back
=================  ==============================================================

A write goes from one state to the next by renaming one folder, which is all or nothing. There is
one way back, ``take_back``, whether a write fails, is found cut off, or is undone.
"""
