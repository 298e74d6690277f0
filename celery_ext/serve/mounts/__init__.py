"""The application inside of an app of Flask, Django or any other framework."""
